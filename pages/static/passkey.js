// Asks the browser for a passkey when the button is pressed, and sends what it says with the form.
(function () {
  "use strict";
  const form = document.querySelector("form[data-passkey]");
  const button = form.querySelector("button");
  const told = document.getElementById("passkey-failure");
  const isNew = form.dataset.passkey === "create";
  const asked = JSON.parse(form.dataset.options);

  function bytes(text) {
    const plain = atob(text.replace(/-/g, "+").replace(/_/g, "/"));
    return Uint8Array.from(plain, (each) => each.charCodeAt(0));
  }

  function text(buffer) {
    const plain = String.fromCharCode(...new Uint8Array(buffer));
    return btoa(plain).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  }

  function options() {
    const known = (list) => list.map((each) => ({ ...each, id: bytes(each.id) }));
    const made = { ...asked, challenge: bytes(asked.challenge) };
    if (isNew) {
      made.user = { ...asked.user, id: bytes(asked.user.id) };
      made.excludeCredentials = known(asked.excludeCredentials);
    } else {
      made.allowCredentials = known(asked.allowCredentials);
    }
    return made;
  }

  function shown(credential) {
    const names = isNew
      ? ["clientDataJSON", "attestationObject"]
      : ["clientDataJSON", "authenticatorData", "signature", "userHandle"];
    const response = {};
    for (const name of names) {
      if (credential.response[name]) response[name] = text(credential.response[name]);
    }
    const id = text(credential.rawId);
    return { id, rawId: id, type: "public-key", response };
  }

  function reason(error) {
    const host = asked.rpId || asked.rp.id;
    if (error.name === "SecurityError") return `Passkeys work at ${host} only. Open this page there.`;
    if (error.name === "InvalidStateError") return "This device has a passkey for your account already.";
    if (error.name === "NotAllowedError") return "No passkey was given. Try again.";
    return "This browser could not use a passkey.";
  }

  if (!window.PublicKeyCredential) {
    told.textContent = "This browser has no passkeys.";
    told.hidden = false;
    return;
  }
  button.hidden = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    told.hidden = true;
    try {
      const publicKey = options();
      const given = isNew
        ? await navigator.credentials.create({ publicKey })
        : await navigator.credentials.get({ publicKey });
      form.elements.credential.value = JSON.stringify(shown(given));
      form.submit();
    } catch (error) {
      told.textContent = reason(error);
      told.hidden = false;
      button.disabled = false;
      button.focus();
    }
  });
})();
