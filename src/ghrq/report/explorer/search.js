// Search by text, without regard to case, accents and characters that have no width.

/** The form in which texts are compared. */
export function folded(text) {
  return text.normalize("NFKD").replace(/[\p{M}\p{Cf}]/gu, "").toLowerCase();
}

/** An index of labels, and of ids if there are any. */
export class Search {
  constructor(labels, ids) {
    this.labels = labels.map(folded);
    this.ids = ids && ids.map(folded);
  }

  /** Items that match, the best first: equal, then at the start of a word, then anywhere; then the shortest, then by id. */
  find(text, most) {
    const wanted = folded(text).trim();
    if (!wanted) return { items: [], count: 0 };
    const found = [];
    for (let item = 0; item < this.labels.length; item++) {
      const rank = Math.min(ranked(this.labels[item], wanted), this.ids ? ranked(this.ids[item], wanted) + 0.5 : 9);
      if (rank < 4) found.push([rank, this.labels[item].length, item]);
    }
    const name = (item) => (this.ids ?? this.labels)[item];
    found.sort((a, b) => a[0] - b[0] || a[1] - b[1] || (name(a[2]) < name(b[2]) ? -1 : 1));
    return { items: found.slice(0, most).map(([, , item]) => item), count: found.length };
  }
}

function ranked(text, wanted) {
  const at = text.indexOf(wanted);
  if (at < 0) return 9;
  if (text.length === wanted.length) return 0;
  if (at === 0) return /[\p{L}\p{N}]/u.test(text[wanted.length]) ? 2 : 1;
  return /[\p{L}\p{N}]/u.test(text[at - 1]) ? 3 : 2;
}
