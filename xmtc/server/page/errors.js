// Error message with a retry button.

import { byId, hide, show } from "./dom.js";

/** Shows an error; the retry button calls `retry`. Aborted requests are not errors. */
export function showError(error, retry = null) {
  if (error.name === "AbortError") return;
  byId("error").querySelector("p").textContent = error.message;
  byId("retry").hidden = !retry;
  byId("retry").onclick = () => {
    hideError();
    retry();
  };
  show(byId("error"));
  byId("error").scrollIntoView({ block: "nearest" });
}

export const hideError = () => hide(byId("error"));
