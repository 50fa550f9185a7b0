"""What went wrong, in one sentence for a person: what was found, what was expected, what to do."""


class XmtcError(ValueError):
    """A mistake the user can mend. The command line prints it without a traceback and exits with 2."""


class MissingExtra(XmtcError, ImportError):
    """A method needs a package that this installation left out."""
