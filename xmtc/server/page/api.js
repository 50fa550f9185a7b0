// Requests to the server: paths, token and errors.

const TOKEN = "xmtc-token"; // kept until the tab is closed
const UNREACHABLE = "The server cannot be reached. It may have been stopped, or the network is down.";

export class ServerError extends Error {
  constructor(message, status = 0, retryAfter = 0) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (value) => sessionStorage.setItem(TOKEN, value),
};

/** Resolves a path relative to the page, so that a proxy may add a prefix. */
export const address = (path) => new URL(path, document.baseURI);
export const modelPath = (name, verb) => `v1/models/${encodeURIComponent(name)}/${verb}`;

/** Returns the response or throws a ServerError. `ask.forToken(isRetry)` is called after a 401. */
export async function ask(path, { body, signal } = {}) {
  const isForm = body instanceof FormData;
  const headers = {};
  if (body && !isForm) headers["Content-Type"] = "application/json";
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;

  let response;
  try {
    response = await fetch(address(path), {
      method: body ? "POST" : "GET",
      headers,
      body: body && !isForm ? JSON.stringify(body) : body,
      signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError(UNREACHABLE);
  }
  if (response.status === 401) {
    await ask.forToken(token.get() !== null);
    return ask(path, { body, signal });
  }
  if (!response.ok) throw await toServerError(response);
  return response;
}

async function toServerError(response) {
  let message = `The server answered ${response.status} ${response.statusText}`.trim() + ".";
  try {
    message = (await response.json()).error.message;
  } catch {
    // not JSON, for example the error page of a proxy: show only the status
  }
  return new ServerError(message, response.status, Number(response.headers.get("Retry-After")) || 0);
}

export const fetchJson = async (path, options) => (await ask(path, options)).json();

/** Retries a request while the server is busy, after the delay that the server asks for. */
export async function retryWhileBusy(request, { signal, onWait, attempts = 6 }) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await request();
    } catch (error) {
      const isBusy = error.status === 429 || error.status === 503;
      if (!isBusy || attempt === attempts) throw error;
      const seconds = error.retryAfter || attempt;
      onWait(seconds);
      await pause(seconds, signal);
    }
  }
}

function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, 1000 * seconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}
