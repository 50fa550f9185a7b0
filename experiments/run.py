"""`xmtc reproduce` of this checkout: python experiments/run.py experiments/NAME.toml [--only ROW …] [--jobs N]."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.argv[:1] = ["xmtc", "reproduce"]

from xmtc.cli import main  # noqa: E402

main()
