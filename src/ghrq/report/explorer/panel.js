// The side panel: where the selection is, what it holds, what it is near to. Labels are only ever set as text.

import { counted, mostly, number, radius, relatives, sentence } from "./words.js";

const PAGE = 60; // items that are listed at once

const get = (id) => document.getElementById(id);

/** An element with a class and children; texts are isolated from the direction of what is around them. */
export function element(tag, name, ...children) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.append(...children);
  return made;
}

function button(name, onclick, ...children) {
  const made = element("button", name, ...children);
  made.type = "button";
  made.addEventListener("click", onclick);
  return made;
}

export const label = (text) => element("bdi", "label", text);

const chip = (code, depth) => element("span", `code depth-${Math.min(depth, 4)}`, String(code));

/** Fill the panel: `app` has { labels, ids, names, nodeLabel, select }. */
export function showPanel(app, pane, node, item) {
  const { tree } = pane, stages = tree.about.stages, path = tree.path(node);
  const go = (target) => () => app.select(pane, target);
  get("crumbs").replaceChildren(
    button("crumb", go(0), "root"),
    ...path.map((each) => {
      const made = button("crumb", go(each), chip(tree.code[each], tree.depth[each]));
      made.setAttribute("aria-label", `code ${tree.code[each]} of stage ${tree.depth[each]}, ${app.nodeLabel(tree, each)}`);
      if (each === node) made.setAttribute("aria-current", "true");
      return made;
    }),
  );
  const title = item !== null ? app.labels[item] : node ? app.nodeLabel(tree, node) : app.title;
  get("what").replaceChildren(...(item === null && node ? [element("small", "", "like ")] : []), label(title));
  const told = [sentence(tree, node, stages)];
  if (item !== null && app.ids) told.unshift(`${app.idName}: ${app.ids[item]}.`);
  get("told").replaceChildren(label(told.join(" ")), node ? element("small", "", radius(tree, node)) : "");
  get("way").replaceChildren(...path.map((each) => wayRow(app, tree, each, go(each))));
  get("way-section").hidden = !path.length;
  showRelatives(app, tree, node, go);
  showItems(app, pane, node, item);
}

function wayRow(app, tree, node, onclick) {
  const what = [counted(tree.count[node], "item"), mostly(tree, node, app.names)].filter(Boolean).join(" · ");
  const row = button("row", onclick, chip(tree.code[node], tree.depth[node]));
  row.append(element("span", "words", label(app.nodeLabel(tree, node)), element("small", "", what)));
  return element("li", "", row);
}

function showRelatives(app, tree, node, go) {
  const found = node ? relatives(tree, node, 6) : [];
  get("relatives").replaceChildren(
    ...found.map((each) => {
      const row = button("row", go(each.node), chip(tree.code[each.node], tree.depth[each.node]));
      const what = `${each.of}, ${each.away.toFixed(2)} away · ${counted(tree.count[each.node], "item")}`;
      row.append(element("span", "words", label(app.nodeLabel(tree, each.node)), element("small", "", what)));
      return element("li", "", row);
    }),
  );
  get("relatives-section").hidden = !found.length;
}

function showItems(app, pane, node, chosen) {
  const { tree } = pane, list = get("items"), more = get("more");
  const from = tree.from[node], to = tree.to[node];
  let next = from;
  const show = (item) => {
    const row = button("row item", () => app.select(pane, tree.leafOf[item], item), label(app.labels[item]));
    if (app.names) row.append(element("small", "", app.names.list[app.names.of[item]] ?? "other"));
    if (item === chosen) row.setAttribute("aria-current", "true");
    return element("li", "", row);
  };
  const page = () => {
    const places = Array.from({ length: Math.min(PAGE, to - next) }, (_, i) => next + i);
    next += places.length;
    list.append(...places.map((place) => show(tree.order[place])));
    more.hidden = next >= to;
    more.textContent = `Show more of ${number(to - next)} others`;
  };
  list.replaceChildren();
  more.onclick = page;
  page();
  const hidden = tree.count[node] - (to - from);
  get("items-title").textContent = `Items (${number(tree.count[node])})`;
  get("sampled").textContent = hidden ? `${number(to - from)} of them are on this page, a random sample.` : "";
  get("sampled").hidden = !hidden;
}
