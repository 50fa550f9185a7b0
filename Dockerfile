# The service in a container: docker build -t xmtc . && docker compose up
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE requirements-serve.lock ./
RUN python -m venv /opt/xmtc
RUN /opt/xmtc/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements-serve.lock
COPY xmtc xmtc
RUN /opt/xmtc/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation .

FROM python:3.12-slim
COPY --from=build /opt/xmtc /opt/xmtc
ENV PATH=/opt/xmtc/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp NUMBA_CACHE_DIR=/cache
RUN install -d -o 10001 -g 10001 /cache
USER 10001:10001
# What is compiled is kept in /cache, which the compose file makes a volume of: the root is read-only.
RUN python -m xmtc.cli.precompile
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=3)"]
ENTRYPOINT ["xmtc", "serve", "--host", "0.0.0.0", "--port", "8000"]
CMD ["/models/model"]
