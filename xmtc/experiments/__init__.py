"""Experiments: commands of xmtc run in processes of their own and measured, tables of them as files, what came of each
kept, and pages that show it beside what was published.

process   one command, measured
keeping   results in a file: read, added to, and where they were made
rows      what a table's file says
commands  the commands of a row
running   the rows that have no result yet
tables    results as Markdown
"""
