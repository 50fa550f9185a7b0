"""Methods and models beside each other: on the same documents, with what they cost, and whether differences are real.

answers   what a model ranks first for each document, kept in a file
truth     the labels of the documents, and how often training had them
figures   the comparison on one corpus
ranking   several comparisons as one: average ranks and tests
specs     which methods, with which parameters
runs      methods trained and measured, each in a process of its own
stored    comparisons as JSON, and back
shown     comparisons as tables
plots     accuracy and cost, critical differences, as SVG
files     the page, Markdown and CSV
"""
