"""`python -m xmtc`, and what `torchrun -m xmtc` starts."""

from xmtc.cli import main

main()
