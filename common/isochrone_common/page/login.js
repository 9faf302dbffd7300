/** The form of a reader who has no session: it sends a credential once, and gets a cookie that scripts cannot read. */

import { RequestError, logIn } from "./api.js";
import { html } from "./dom.js";

/**
 * The form; `reason` is why the last attempt failed.
 * @param {string} reason
 * @param {(reason: string) => void} onEnd is called after an attempt, without a reason if it succeeded.
 */
export function loginForm(reason, onEnd) {
  const submit = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.currentTarget);
    const pasted = String(new FormData(form).get("credential") ?? "");
    // Of a whole identity file no more is sent than the credential.
    const [credential = pasted] = /isochrone-key-[\w-]+/.exec(pasted) ?? [];
    try {
      await logIn({ credential });
      form.reset();
      onEnd("");
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      onEnd(error.message);
    }
  };
  return html("form", { class: "login", method: "post", action: "/session", onsubmit: submit },
    html("h1", {}, "Log in"),
    html("p", {}, "This collector requires the credential of a reader."),
    // Password managers need a name beside a password.
    html("input", { type: "text", name: "username", value: "isochrone", autocomplete: "username", hidden: true }),
    html("label", {}, html("span", {}, "Identity file or credential"),
      html("input", { type: "password", name: "credential", required: true, autocomplete: "current-password",
        placeholder: "paste it", spellcheck: "false", "aria-describedby": "login-help" })),
    reason ? html("p", { class: "refused", role: "alert" }, reason) : null,
    html("button", { type: "submit" }, "Log in"),
    html("p", { id: "login-help", class: "note" }, html("code", {}, "isochrone page"), " prints a link that logs in. Or paste the identity file that ",
      html("code", {}, "isochrone join"), " wrote, by default ", html("code", {}, "~/.config/isochrone/identity.json"),
      ", or ", html("code", {}, "operator.json"), " of the data folder of the collector: only its credential is sent."));
}
