"""Explanations: word weights highlighted in the text, on a terminal or as HTML."""
