// The columns of the page: one deflated block of a JSON header and arrays, see explorer_page.py.

const ARRAYS = {
  u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i4: Int32Array, f4: Float32Array, f8: Float64Array,
};

/** Decode the text of the data block. */
export async function decode(base64) {
  const letters = atob(base64.trim()), packed = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) packed[i] = letters.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return unpack(await new Response(stream).arrayBuffer());
}

/** The header, and its columns as typed arrays or lists of texts. */
export function unpack(buffer) {
  const size = new DataView(buffer).getUint32(0, true), text = new TextDecoder();
  const header = JSON.parse(text.decode(new Uint8Array(buffer, 4, size)));
  const columns = {};
  let offset = aligned(4 + size);
  for (const [name, type, bytes] of header.columns) {
    if (type === "text") columns[name] = text.decode(new Uint8Array(buffer, offset, bytes)).split("\n");
    else columns[name] = new ARRAYS[type](buffer, offset, bytes / ARRAYS[type].BYTES_PER_ELEMENT);
    offset = aligned(offset + bytes);
  }
  return { header, columns };
}

const aligned = (offset) => (offset + 7) & ~7;

/** One tokenizer's prefixes. Nodes are numbered level by level, the root is 0; an item is a place in the labels. */
export class Tree {
  constructor(about, columns, number) {
    const column = (name) => columns[`${number}.${name}`];
    this.about = about;
    this.children = column("children");
    this.code = column("code");
    this.count = column("count");
    this.distance = column("distance");
    this.like = column("like");
    this.size = this.children.length;
    this.order = column("order");
    this.first = new Uint32Array(this.size);
    this.parent = new Int32Array(this.size).fill(-1);
    this.depth = new Uint8Array(this.size);
    let next = 1;
    for (let node = 0; node < this.size; node++) {
      this.first[node] = next;
      for (const end = next + this.children[node]; next < end; next++) {
        this.parent[next] = node;
        this.depth[next] = this.depth[node] + 1;
      }
    }
    this.setItems(column("leaf_items"));
    this.setNear(about.near, column);
  }

  /** The items of a node are order[from[node]] … order[to[node] − 1]. */
  setItems(leafItems) {
    const size = this.size, leaves = leafItems.length;
    this.from = new Uint32Array(size).fill(0xffffffff);
    this.to = new Uint32Array(size);
    this.leafOf = new Uint32Array(this.order.length);
    let place = 0;
    for (let leaf = 0; leaf < leaves; leaf++) {
      const node = size - leaves + leaf;
      this.from[node] = place;
      for (const end = place + leafItems[leaf]; place < end; place++) this.leafOf[this.order[place]] = node;
      this.to[node] = place;
    }
    for (let node = size - 1; node > 0; node--) {
      const parent = this.parent[node];
      this.from[parent] = Math.min(this.from[parent], this.from[node]);
      this.to[parent] = Math.max(this.to[parent], this.to[node]);
    }
  }

  setNear(shapes, column) {
    const used = column("used"), codes = column("near"), away = column("away");
    let row = 0, entry = 0;
    this.near = shapes.map(([count, width]) => {
      const rows = new Map();
      for (let i = 0; i < count; i++, entry += width) {
        rows.set(used[row + i], { codes: codes.subarray(entry, entry + width), away: away.subarray(entry, entry + width) });
      }
      row += count;
      return rows;
    });
  }

  /** The nodes from below the root to the node itself. */
  path(node) {
    const path = [];
    for (; node > 0; node = this.parent[node]) path.unshift(node);
    return path;
  }

  codes(node) {
    return this.path(node).map((each) => this.code[each]);
  }

  /** The node of some first codes, or −1. */
  find(codes) {
    let node = 0;
    for (const code of codes) {
      node = this.child(node, code);
      if (node < 0) return -1;
    }
    return node;
  }

  child(node, code) {
    const end = this.first[node] + this.children[node];
    for (let child = this.first[node]; child < end; child++) if (this.code[child] === code) return child;
    return -1;
  }

  /** The child with the most items, or −1. */
  largestChild(node) {
    let best = -1;
    const end = this.first[node] + this.children[node];
    for (let child = this.first[node]; child < end; child++) {
      if (best < 0 || this.count[child] > this.count[best]) best = child;
    }
    return best;
  }

  /** The sibling before or after, round and round. */
  sibling(node, by) {
    const parent = this.parent[node];
    if (parent < 0) return node;
    const first = this.first[parent], count = this.children[parent];
    return first + ((node - first + by + count) % count);
  }

  /** Siblings by the distance of what they decode to, the nearest first: [{ node, away }]. */
  siblings(node, most) {
    const near = this.depth[node] ? this.near[this.depth[node] - 1].get(this.code[node]) : null;
    const found = [];
    for (let i = 0; near && i < near.codes.length && found.length < most; i++) {
      const other = this.child(this.parent[node], near.codes[i]);
      if (other >= 0) found.push({ node: other, away: near.away[i] });
    }
    return found;
  }
}
