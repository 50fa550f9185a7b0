"""A small Hugging Face Hub on loopback: repositories, commits, information on a model, and downloads."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Files = dict[str, bytes]
TOKEN = "hf_loopback"


class LoopbackHub(ThreadingHTTPServer):
    """Server with the files of every commit, by repository and commit; the last commit is `main`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.commits: dict[str, dict[str, Files]] = {}
        self.requests: list[str] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def add_commit(self, repository: str, files: Files) -> str:
        commits = self.commits.setdefault(repository, {})
        latest = next(reversed(commits.values()), {}) | files
        commit = hashlib.sha1(repr((len(commits), sorted(latest.items()))).encode()).hexdigest()
        commits[commit] = latest
        return commit

    def find_commit(self, repository: str, revision: str) -> str | None:
        commits = self.commits.get(repository, {})
        return next(reversed(commits), None) if revision == "main" else revision if revision in commits else None


class Handler(BaseHTTPRequestHandler):
    server: LoopbackHub

    def log_message(self, format: str, *args: object) -> None:
        self.server.requests.append(f"{self.command} {self.path}")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/api/validate-yaml":
            return self.answer({"errors": [], "warnings": []})
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.refuse(401, "Invalid username or password.")
        if self.path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
            self.server.commits.setdefault(name, {})
            return self.answer({"url": f"{self.server.endpoint}/{name}", "name": name, "id": name})
        repository, action = "/".join(self.path.split("/")[3:5]), self.path.split("/")[5]
        if action == "preupload":
            files = [{**file, "uploadMode": "regular", "shouldIgnore": False} for file in json.loads(body)["files"]]
            return self.answer({"files": files})
        lines = [json.loads(line) for line in body.splitlines()]
        files = {
            line["value"]["path"]: base64.b64decode(line["value"]["content"]) for line in lines if line["key"] == "file"
        }
        commit = self.server.add_commit(repository, files)
        return self.answer({"commitUrl": f"{self.server.endpoint}/{repository}/commit/{commit}", "commitOid": commit})

    def do_GET(self) -> None:
        parts = self.path.strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            repository, revision = "/".join(parts[2:4]), parts[5] if len(parts) > 5 else "main"
            commit = self.server.find_commit(repository, revision)
            if commit is None:
                return self.refuse(404, "Repository not found", "RepoNotFound")
            names = [{"rfilename": name} for name in self.server.commits[repository][commit]]
            return self.answer({"id": repository, "sha": commit, "siblings": names})
        return self.send_file(parts)

    do_HEAD = do_GET

    def send_file(self, parts: list[str]) -> None:
        repository, commit, name = "/".join(parts[:2]), parts[3], "/".join(parts[4:])
        content = self.server.commits.get(repository, {}).get(commit, {}).get(name)
        if content is None:
            return self.refuse(404, "Entry not found", "EntryNotFound")
        headers = {"X-Repo-Commit": commit, "ETag": f'"{hashlib.sha1(content).hexdigest()}"'}
        self.respond(200, content, "application/octet-stream", headers)

    def answer(self, content: object) -> None:
        self.respond(200, json.dumps(content).encode(), "application/json", {})

    def refuse(self, status: int, message: str, code: str = "") -> None:
        headers = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {})
        self.respond(status, b"{}", "application/json", headers)

    def respond(self, status: int, content: bytes, kind: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@contextmanager
def run_hub() -> Iterator[LoopbackHub]:
    """Run a hub while the block is executed."""
    with LoopbackHub() as hub:
        thread = threading.Thread(target=hub.serve_forever)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()
