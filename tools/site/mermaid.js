// Pictures are drawn by the copy of Mermaid beside this file, which is loaded by the first page that has one.
// The theme would fetch it from another host, unless there is a `mermaid` already.
"use strict";

(() => {
  const copy = new URL("mermaid.min.js", document.currentScript.src).href;
  let options = {};
  let loading;

  function load() {
    loading ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.onload = () => {
        window.mermaid.initialize(options);
        resolve(window.mermaid);
      };
      script.onerror = () => reject(new Error(`cannot load ${copy}`));
      script.src = copy;
      document.head.append(script);
    });
    return loading;
  }

  window.mermaid = {
    initialize: (given) => {
      options = given;
    },
    render: async (...picture) => (await load()).render(...picture),
  };
})();
