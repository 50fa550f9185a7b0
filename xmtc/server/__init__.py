"""HTTP service of trained models (`xmtc serve`). Only this package imports FastAPI and uvicorn."""
