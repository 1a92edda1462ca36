// HTML that the server made of Markdown: it lets no markup of the text through (server/web/markdown.py). Nothing else may come here.

/** The nodes of it. */
export function fragment(html) {
  return [...new DOMParser().parseFromString(html, "text/html").body.childNodes];
}
