// Where an item, or a source, is shown: every page that names one links to it with these.

/** The page of an item, which may be a trusted one; for leads. */
export const itemPath = (campaign, item, trusted = false) => `/c/${encodeURIComponent(campaign)}/lead/items/${encodeURIComponent(item)}${trusted ? "?split=val" : ""}`;

/** What is known of a source; for leads. */
export const sourcePath = (campaign, name) => `/c/${encodeURIComponent(campaign)}/lead/source?name=${encodeURIComponent(name)}`;
