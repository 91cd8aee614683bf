"use strict";
// Shows the API's document with Swagger UI; what is tried is sent as the page's user.

const api = document.getElementById("api");

// Levels of headings and names of fields, which Swagger UI leaves out. It draws again with every click, so this is
// done again, too.
const PARTS = {
  "h3.opblock-tag": { role: "heading", "aria-level": "2" },
  h4: { role: "heading", "aria-level": "3" },
  h5: { role: "heading", "aria-level": "4" },
  "textarea.body-param__text": { "aria-label": "Body of the request" },
  "pre.microlight, .highlight-code > div, .highlight-code pre, .body-param__example": { tabindex: "0" },
};

function nameParts() {
  for (const [selector, attributes] of Object.entries(PARTS)) {
    for (const element of api.querySelectorAll(selector)) {
      for (const [name, value] of Object.entries(attributes)) {
        if (element.getAttribute(name) !== value) element.setAttribute(name, value);
      }
    }
  }
}

// Its own layout has a title and a main landmark, which the page has already.
function layout(system) {
  function PageLayout({ getComponent, specSelectors }) {
    const { createElement } = system.React;
    const show = (name, connected = true) => createElement(getComponent(name, connected), { key: name });
    if (specSelectors.loadingStatus() !== "success") return createElement("div", { className: "swagger-ui" }, show("errors"));
    const authorize = specSelectors.securityDefinitions() ? [show("AuthorizeBtnContainer")] : [];
    return createElement(
      "div",
      { className: "swagger-ui" },
      show("SvgAssets", false),
      show("errors"),
      createElement("div", { className: "authorization" }, ...authorize),
      show("operations"),
    );
  }
  return { components: { PageLayout } };
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
  layout: "PageLayout",
  plugins: [layout],
  requestInterceptor(request) {
    const isOurs = new URL(request.url, location.href).origin === location.origin;
    if (isOurs && api.dataset.formToken) request.headers["X-Form-Token"] = api.dataset.formToken;
    return request;
  },
});
