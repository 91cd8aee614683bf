"use strict";
// Shows the API's document with Swagger UI; what is tried is sent as the page's user.

const api = document.getElementById("api");

// Swagger UI takes the page for its own: its landmark and headings stand inside of ours, and some of its fields have no
// name. It draws again with every click, so this does, too.
function nameParts() {
  const parts = {
    main: { role: "group", "aria-label": "Operations" },
    "h3.opblock-tag": { role: "heading", "aria-level": "2" },
    "textarea.body-param__text": { "aria-label": "Body of the request" },
    "pre.microlight, .highlight-code > div, .highlight-code pre, .body-param__example": { tabindex: "0" },
    "select:not([aria-label], [id])": { "aria-label": "Choice" },
  };
  for (const [selector, attributes] of Object.entries(parts)) {
    for (const element of api.querySelectorAll(selector)) {
      for (const [name, value] of Object.entries(attributes)) {
        if (element.getAttribute(name) !== value) element.setAttribute(name, value);
      }
    }
  }
}

new MutationObserver(nameParts).observe(api, { childList: true, subtree: true });

SwaggerUIBundle({
  url: api.dataset.document,
  domNode: api,
  deepLinking: false, // its links would stand inside of buttons
  docExpansion: "list",
  defaultModelsExpandDepth: -1,
  displayRequestDuration: true,
  validatorUrl: null,
  plugins: [() => ({ wrapComponents: { info: () => () => null } })], // the page has a title
  requestInterceptor(request) {
    const isOurs = new URL(request.url, location.href).origin === location.origin;
    if (isOurs && api.dataset.formToken) request.headers["X-Form-Token"] = api.dataset.formToken;
    return request;
  },
});
