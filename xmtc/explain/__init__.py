"""An explanation shown in the text it explains: on a terminal, or as a page."""
