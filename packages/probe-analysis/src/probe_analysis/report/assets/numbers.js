"use strict";
/* Write numbers for people. */

const Numbers = (() => {
  /** Return a number with so many digits; whole numbers whole; NaN and infinities by name. */
  function text(x, digits = 6) {
    if (Number.isNaN(x)) return "NaN";
    if (x === Infinity) return "+Inf";
    if (x === -Infinity) return "-Inf";
    if (Number.isInteger(x) && Math.abs(x) < 1e9) return String(x + 0);
    const small = Math.abs(x) < 1e-3;
    const [mantissa, exponent] = (small ? x.toExponential(digits - 1) : x.toPrecision(digits)).split("e");
    const short = mantissa.includes(".") ? mantissa.replace(/\.?0+$/, "") : mantissa;
    return exponent === undefined ? short : `${short}e${exponent.replace("+", "")}`;
  }

  /** Return a count with its word: ``1 call``, ``1,200 calls``. */
  function count(n, word) {
    return `${n.toLocaleString("en-US")} ${word}${n === 1 ? "" : "s"}`;
  }

  return { text, count };
})();
