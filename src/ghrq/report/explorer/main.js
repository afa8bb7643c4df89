// The page: decodes its data, makes the panes, and keeps panes, panel, search and address in step.

import { branchColours, MOST_NAMES, nameColours, palette } from "./colours.js";
import { decode, Tree } from "./data.js";
import { trueLayout, treeLayout } from "./layout.js";
import { Pane } from "./pane.js";
import { element, label, showPanel } from "./panel.js";
import { Search } from "./search.js";
import { counted, mostly, number } from "./words.js";

const HITS = 40;
const get = (id) => document.getElementById(id);
const query = (text) => window.matchMedia(text);

class App {
  constructor({ header, columns }) {
    Object.assign(this, { header, labels: columns.labels, ids: columns.ids, idName: header.id, title: header.title });
    this.names = header.colour && { list: header.colour.names.slice(0, MOST_NAMES), of: columns.colour };
    this.search = null;
    this.still = query("(prefers-reduced-motion: reduce)");
    this.panes = header.trees.map((about, i) => {
      const tree = new Tree(about, columns, i), layout = treeLayout(tree), canvas = get(`disk-${i}`);
      return new Pane(canvas, tree, { tree: layout, get true() { return (this.kept ??= trueLayout(layout)); } }, this);
    });
    this.colouring = this.names ? "names" : "branches";
    this.controls();
    this.recolour();
    for (const pane of this.panes) pane.resize();
    new ResizeObserver(() => this.resize()).observe(get("panes"));
    window.addEventListener("hashchange", () => this.follow());
    this.follow(true);
  }

  // --- what is drawn ---

  resize() {
    for (const pane of this.panes) if (pane.resize()) pane.draw(); // at once: a new size has emptied the canvas
  }

  /** Colours and theme, again. */
  recolour() {
    const style = getComputedStyle(document.documentElement), value = (name) => style.getPropertyValue(name).trim();
    const forced = query("(forced-colors: active)").matches;
    const dark = style.colorScheme === "dark" || (style.colorScheme !== "light" && query("(prefers-color-scheme: dark)").matches);
    const contrast = forced || query("(prefers-contrast: more)").matches;
    const colours = palette({ dark, contrast });
    const theme = { ink: value("--ink"), pale: value("--pale"), paper: value("--disk"), halo: value("--disk"), accent: value("--accent") };
    for (const pane of this.panes) {
      const key = `${this.colouring} of ${pane.view.layout === pane.layouts.tree}`, kept = (pane.kept ??= {});
      kept[key] ??= this.colouring === "names"
        ? nameColours(pane.view.layout, this.names.of, this.names.list.length)
        : branchColours(pane.view.layout);
      Object.assign(pane.look, {
        theme, colours: kept[key], palette: colours[this.colouring], mixed: colours.mixed,
        label: (node) => this.nodeLabel(pane.tree, node), room: pane.view.layout.room,
      });
      pane.request();
    }
    this.legend(colours);
  }

  legend(colours) {
    const shown = this.colouring === "names", { colour } = this.header;
    get("legend").hidden = !shown;
    if (!shown) return;
    const rows = this.names.list.map((name, i) => legendRow(colours.names[i], name, colour.counts[i]));
    if (colour.other) rows.push(legendRow(colours.mixed, "other", colour.other));
    get("legend").replaceChildren(...rows);
  }

  nodeLabel(tree, node) {
    return this.labels[tree.order[tree.like[node]]];
  }

  // --- called by panes ---

  states() {
    return this.panes.map((pane) => pane.view.state);
  }

  moved(pane, isometry, since) {
    this.panes.forEach((each, i) => {
      if (each !== pane && !get("linked")?.checked) return;
      each.moving = each === pane ? pane.moving : false;
      each.stop();
      each.view.move(isometry, since[i]);
      each.request();
    });
  }

  picked(pane, node) {
    this.select(pane, node);
  }

  key(pane, event) {
    const { tree } = pane, node = pane.look.selected;
    const to = {
      ArrowUp: () => Math.max(0, tree.parent[node]), "-": () => Math.max(0, tree.parent[node]),
      ArrowDown: () => tree.largestChild(node), "+": () => tree.largestChild(node), "=": () => tree.largestChild(node),
      ArrowLeft: () => tree.sibling(node, -1), ArrowRight: () => tree.sibling(node, 1), Home: () => 0,
    }[event.key];
    if (event.key === "Enter") get("what").focus();
    if (!to || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const target = to();
    if (target >= 0) this.select(pane, target);
  }

  // --- the selection and the address ---

  /** Select a node, or an item with its node; the address follows, so that Back works. */
  select(pane, node, item = null) {
    const place = `${"ab"[this.panes.indexOf(pane)]}${pane.tree.codes(node).map((code) => `.${code}`).join("")}`;
    const hash = `#${place}${item === null ? "" : `!${item}`}`;
    if (location.hash === hash || (!location.hash && hash === "#a")) this.show(pane, node, item);
    else location.hash = hash;
  }

  /** Show what the address says. */
  follow(first = false) {
    const [place, item] = location.hash.slice(1).split("!");
    const [side, ...codes] = place.split("."), pane = this.panes["ab".indexOf(side || "a")] ?? this.panes[0];
    const node = Math.max(0, pane.tree.find(codes.map(Number)));
    const known = item !== undefined && pane.tree.leafOf[Number(item)] === node;
    this.show(pane, node, known ? Number(item) : null, first);
  }

  show(pane, node, item, first = false) {
    this.selection = { pane, node, item };
    const twin = item ?? pane.tree.order[pane.tree.like[node]];
    for (const each of this.panes) {
      let own = node;
      if (each !== pane) {
        own = each.tree.leafOf[twin];
        while (item === null && each.tree.depth[own] > pane.tree.depth[node]) own = each.tree.parent[own];
      }
      each.look.selected = own;
      each.look.path = new Set();
      for (let at = own; at > 0; at = each.view.layout.parent[at]) each.look.path.add(at);
      each.fly(own, first || this.still.matches);
      const codes = each.tree.codes(own);
      get(`where-${this.panes.indexOf(each)}`)?.replaceChildren(codes.length ? codes.join(" · ") : "root");
    }
    showPanel(this, pane, node, item);
    const what = item !== null ? this.labels[item] : node ? `like ${this.nodeLabel(pane.tree, node)}` : "root";
    const parts = [what, node && `codes ${pane.tree.codes(node).join(", ")}`, counted(pane.tree.count[node], "item"), mostly(pane.tree, node, this.names)];
    if (!first) get("said").textContent = parts.filter(Boolean).join("; ");
  }

  // --- controls ---

  controls() {
    const colour = get("colour");
    colour.replaceChildren(option("branches", "branch"), ...(this.names ? [option("names", this.header.colour.name)] : []));
    colour.value = this.colouring;
    colour.addEventListener("change", () => {
      this.colouring = colour.value;
      this.recolour();
    });
    get("radius").addEventListener("change", (event) => {
      for (const pane of this.panes) pane.use(event.target.value);
      this.recolour();
      const { pane, node, item } = this.selection;
      this.show(pane, node, item, true);
    });
    get("theme").addEventListener("click", () => {
      const root = document.documentElement, now = getComputedStyle(root).colorScheme;
      const dark = now === "dark" || (now !== "light" && query("(prefers-color-scheme: dark)").matches);
      root.dataset.theme = dark ? "light" : "dark";
      this.recolour();
    });
    get("home").addEventListener("click", () => this.select(this.selection.pane, 0));
    get("back").addEventListener("click", () => history.back());
    for (const text of ["(prefers-color-scheme: dark)", "(prefers-contrast: more)", "(forced-colors: active)"]) {
      query(text).addEventListener("change", () => this.recolour());
    }
    this.searching();
  }

  searching() {
    const input = get("search"), list = get("hits");
    let items = [], active = -1;
    const close = () => {
      list.hidden = true;
      active = -1;
      input.setAttribute("aria-expanded", "false");
      input.removeAttribute("aria-activedescendant");
    };
    const choose = (item) => {
      close();
      const { pane } = this.selection;
      this.select(pane, pane.tree.leafOf[item], item);
    };
    const mark = (to) => {
      active = (to + items.length) % items.length;
      [...list.children].forEach((row, i) => row.setAttribute("aria-selected", String(i === active)));
      list.children[active].scrollIntoView({ block: "nearest" });
      input.setAttribute("aria-activedescendant", `hit-${active}`);
    };
    input.addEventListener("input", () => {
      this.search ??= new Search(this.labels, this.ids);
      const found = this.search.find(input.value, HITS);
      items = found.items;
      list.replaceChildren(...items.map((item, i) => this.hit(item, i, choose)));
      list.hidden = !items.length;
      input.setAttribute("aria-expanded", String(items.length > 0));
      const text = `${counted(found.count, "item")} found${found.count > HITS ? `, the first ${HITS} are listed` : ""}`;
      get("found").textContent = input.value.trim() ? text : "";
      active = -1;
    });
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close();
      if (!items.length || list.hidden) return;
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        event.preventDefault();
        mark(event.key === "ArrowDown" ? active + 1 : active < 0 ? -1 : active - 1);
      }
      if (event.key === "Enter") choose(items[Math.max(0, active)]);
    });
    input.addEventListener("blur", () => setTimeout(close, 150));
    document.addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.target === input || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      input.focus();
    });
  }

  hit(item, i, choose) {
    const row = element("li", "", label(this.labels[item]));
    const { tree } = this.selection.pane;
    row.append(element("small", "", this.ids ? label(this.ids[item]) : tree.codes(tree.leafOf[item]).join(" · ")));
    row.id = `hit-${i}`;
    row.setAttribute("role", "option");
    row.setAttribute("aria-selected", "false");
    row.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      choose(item);
    });
    return row;
  }
}

function option(value, text) {
  const made = element("option", "", text);
  made.value = value;
  return made;
}

function legendRow(colour, name, count) {
  const dot = element("span", "dot");
  dot.style.background = colour;
  return element("li", "", dot, label(name), element("small", "", number(count)));
}

async function start() {
  try {
    window.explorer = new App(await decode(get("data").textContent));
    get("data").remove();
    performance.mark("first-picture");
    document.documentElement.dataset.ready = "yes";
  } catch (error) {
    get("told").textContent = `This page cannot be shown here (${error.message}). It needs a browser of 2023 or later.`;
    throw error;
  }
}

start();
