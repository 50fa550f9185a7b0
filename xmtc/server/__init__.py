"""The tagger as a service: `xmtc serve`. What needs FastAPI or uvicorn is imported by nobody else."""
