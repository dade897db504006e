"use strict";
/* Make elements. Every text goes in as text: nothing that a dump holds is ever read as HTML. */

/** Return an element. children: elements and texts; null ones are left out. */
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "onclick") element.addEventListener("click", value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Return the element with an id. */
function by(id) {
  return document.getElementById(id);
}
