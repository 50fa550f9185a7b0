// Dialog that asks for a token after a request was refused.

import { ask, token } from "./api.js";
import { byId } from "./dom.js";

/** `wrongToken` returns the note that a refused token gets. */
export function startToken(wrongToken) {
  byId("token").addEventListener("cancel", (event) => event.preventDefault());
  /** Resolves when the user has entered a token; `isRetry` means that the previous token was not accepted. */
  ask.forToken = (isRetry) =>
    new Promise((resolve) => {
      if (isRetry) byId("token-note").textContent = wrongToken();
      const save = () => {
        token.set(byId("token-value").value);
        byId("token-value").value = "";
        resolve();
      };
      byId("token").addEventListener("close", save, { once: true });
      if (!byId("token").open) byId("token").showModal();
    });
}
