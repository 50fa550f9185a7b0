"""Documents and labels in one space of vectors."""
