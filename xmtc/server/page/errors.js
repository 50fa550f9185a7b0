// What went wrong, in one sentence, with a way to go on.

import { at, hide, show } from "./dom.js";

/** Shows an error; `again()` does what failed once more. What was stopped on purpose is no error. */
export function failed(error, again = null) {
  if (error.name === "AbortError") return;
  at("error").querySelector("p").textContent = error.message;
  at("retry").hidden = !again;
  at("retry").onclick = () => {
    noError();
    again();
  };
  show(at("error"));
  at("error").scrollIntoView({ block: "nearest" });
}

export const noError = () => hide(at("error"));
