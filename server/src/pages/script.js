// Copy buttons. Everything else on the pages works without a script.
"use strict";
(() => {
  const status = document.getElementById("status");
  const say = (text) => {
    if (status) status.textContent = text;
  };
  const copy = async (text) => {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    // Plain HTTP has no clipboard API.
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "hidden";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) throw new Error("not allowed");
  };
  for (const button of document.querySelectorAll("button[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const source = document.getElementById(button.dataset.copy);
      try {
        await copy(source.textContent);
        button.textContent = "Copied";
        say("Copied to the clipboard");
      } catch {
        button.textContent = "Select and copy";
        getSelection().selectAllChildren(source);
      }
      setTimeout(() => {
        button.textContent = "Copy";
        say("");
      }, 2000);
    });
  }
})();
