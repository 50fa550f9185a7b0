// Asking the server: addresses, the token, and errors that are sentences.

const TOKEN = "xmtc-token"; // kept for the tab, not longer
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

/** Relative to the page, so that it works behind a prefix of a proxy. */
export const address = (path) => new URL(path, document.baseURI);
export const ofModel = (name, verb) => `v1/models/${encodeURIComponent(name)}/${verb}`;

/** The response of the server, or a ServerError; `ask.forToken(again)` is what to do about a 401. */
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
  if (!response.ok) throw await asError(response);
  return response;
}

async function asError(response) {
  let message = `The server answered ${response.status} ${response.statusText}`.trim() + ".";
  try {
    message = (await response.json()).error.message;
  } catch {
    // a proxy's page, say: the status has to do
  }
  return new ServerError(message, response.status, Number(response.headers.get("Retry-After")) || 0);
}

export const asked = async (path, options) => (await ask(path, options)).json();

/** Asks again while the server is busy: it says for how long. */
export async function patiently(question, { signal, waiting, times = 6 }) {
  for (let turn = 1; ; turn++) {
    try {
      return await question();
    } catch (error) {
      const isBusy = error.status === 429 || error.status === 503;
      if (!isBusy || turn === times) throw error;
      const seconds = error.retryAfter || turn;
      waiting(seconds);
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
