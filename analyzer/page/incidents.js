// SPDX-License-Identifier: Apache-2.0
// All incidents that are kept, newest first, page by page.

import { path } from "./api.js";
import { h } from "./dom.js";
import { incidents, none } from "./parts.js";

export const title = () => "Incidents";
export const source = (_, { state, layer, component, after }) => path("incidents", { state, layer, component, after });
export const every = 6;

export function view(data, { query, go }) {
  const select = (name, text, values) => {
    const field = h("select", { id: name, name }, h("option", { value: "" }, "any"),
      values.map((each) => h("option", { value: each, selected: each === query[name] }, each === "active" ? "not over" : each)));
    return [field, h("div", { class: "short" }, h("label", { for: name }, text), field)];
  };
  const [state, inState] = select("state", "State", data.states);
  const [layer, inLayer] = select("layer", "Layer", data.layers);
  const component = h("input", { id: "component", name: "component", type: "search", value: query.component ?? "", maxlength: 200, spellcheck: "false", autocomplete: "off" });
  const submit = (event) => {
    event.preventDefault();
    go(link({ state: state.value, layer: layer.value, component: component.value.trim() }));
  };
  return [
    h("h1", {}, "Incidents"),
    h("form", { class: "fields", role: "search", onsubmit: submit }, inState, inLayer,
      h("div", {}, h("label", { for: "component" }, "At fault, has in its name"), component), h("button", {}, "Find")),
    data.incidents.length ? incidents(data.incidents, "Incidents that are kept, newest first", { sorted: true })
      : none(data.next ? "None among those of this page." : "None is kept."),
    h("p", { class: "pages" }, query.after ? h("a", { href: link({ ...query, after: "" }) }, "Newest") : null,
      data.next ? h("a", { href: link({ ...query, after: data.next }) }, "Older") : null),
  ];
}

function link(query) {
  const given = Object.entries(query).filter(([, value]) => value);
  return `#/incidents${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}
