// Isometries of the Poincaré disk, curvature −1.
//
// A frame [ar, ai, br, bi] is z ↦ (αz + β) / (β̄z + ᾱ) with |α|² − |β|² = 1. A product of translations is the nested
// Möbius sum: compose(translation(x), translation(y)) takes 0 to x ⊕ y. Frames keep all digits near the rim, where
// coordinates lose them: the gap 1 − |w|² of the image w of 0 is 1/|α|², and its distance from the centre 2 asinh|β|.

/** 1 − x² − y² to the last digit: what squares and differences lose by rounding is added at the end. */
export function gap(x, y) {
  const [xx, ex] = square(x), [yy, ey] = square(y);
  const [p, ep] = difference(1, xx), [q, eq] = difference(p, yy);
  return q + (ep + eq - ex - ey);
}

/** a − b as the nearest number and what that lost. */
function difference(a, b) {
  const s = a - b, t = s - a;
  return [s, a - (s - t) - (b + t)];
}

/** x² as the nearest number and what that lost. */
function square(x) {
  const t = 134217729 * x, high = t - (t - x), low = x - high, p = x * x;
  return [p, high * high - p + 2 * high * low + low * low];
}

/** z ↦ (x, y) ⊕ z. */
export function translation(x, y) {
  const f = 1 / Math.sqrt(gap(x, y));
  return [f, 0, f * x, f * y];
}

/** The translation along a direction (a unit vector) by a distance; negative distances go back. */
export function step(ux, uy, distance) {
  const s = Math.sinh(distance / 2);
  return [Math.cosh(distance / 2), 0, s * ux, s * uy];
}

/** The turn around the centre by an angle. */
export const turn = (angle) => [Math.cos(angle / 2), Math.sin(angle / 2), 0, 0];

/** The translation that takes a to b: m with m ⊕ a = b. */
export function carrying(ax, ay, bx, by) {
  const dx = bx - ax, dy = by - ay;
  const px = ax * bx - ay * by, py = ax * by + ay * bx;
  const f = 1 / (1 - (ax * ax + ay * ay) * (bx * bx + by * by));
  return translation(f * (dx + px * dx + py * dy), f * (dy + py * dx - px * dy));
}

/** First g, then f. */
export function compose([ar, ai, br, bi], [cr, ci, dr, di]) {
  return [
    ar * cr - ai * ci + br * dr + bi * di,
    ar * ci + ai * cr - br * di + bi * dr,
    ar * dr - ai * di + br * cr + bi * ci,
    ar * di + ai * dr - br * ci + bi * cr,
  ];
}

export const inverse = ([ar, ai, br, bi]) => [ar, -ai, -br, -bi];

/** The same frame with |α|² − |β|² = 1 again, after many products. */
export function normal([ar, ai, br, bi]) {
  const f = 1 / Math.sqrt(ar * ar + ai * ai - br * br - bi * bi);
  return [f * ar, f * ai, f * br, f * bi];
}

/** The image of a point. */
export function apply([ar, ai, br, bi], x, y) {
  const nx = ar * x - ai * y + br, ny = ar * y + ai * x + bi;
  const dx = br * x + bi * y + ar, dy = br * y - bi * x - ai;
  const f = 1 / (dx * dx + dy * dy);
  return [f * (nx * dx + ny * dy), f * (ny * dx - nx * dy)];
}

/** The image of 0: β/ᾱ. */
export function origin([ar, ai, br, bi]) {
  const f = 1 / (ar * ar + ai * ai);
  return [f * (br * ar - bi * ai), f * (br * ai + bi * ar)];
}

/** The distance between the centre and the image of 0. */
export const distance = ([, , br, bi]) => 2 * Math.asinh(Math.hypot(br, bi));

/**
 * The circle of the geodesic through a and b as [x, y, radius]: it meets the rim at right angles. Null if the geodesic
 * is straight, or so nearly that the circle has no digits.
 */
export function circle(ax, ay, bx, by) {
  const det = ax * by - ay * bx;
  if (Math.abs(det) < 1e-9) return null;
  const p = (1 + ax * ax + ay * ay) / 2, q = (1 + bx * bx + by * by) / 2;
  const x = (p * by - q * ay) / det, y = (q * ax - p * bx) / det;
  return [x, y, Math.sqrt(x * x + y * y - 1)];
}

/**
 * A flight that brings the image of 0 under `frame` to the centre, along the geodesic. Returns the frame at a time from
 * 0 to 1. It is exact at the end, however far away that is: distances are subtracted, not coordinates.
 */
export function flight(frame) {
  const far = distance(frame), [ar, ai, br, bi] = frame;
  const length = Math.hypot(br, bi) * Math.hypot(ar, ai) || 1;
  const ux = (br * ar - bi * ai) / length, uy = (br * ai + bi * ar) / length;
  const last = turn(2 * Math.atan2(ai, ar));
  return (time) => compose(step(ux, uy, far * (1 - time)), last);
}
