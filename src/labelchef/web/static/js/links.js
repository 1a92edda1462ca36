// Where an item, or a source, is shown: every page that names one links to it with these.

/** The page of all items, opened at one of them; for leads. */
export const itemPath = (campaign, item) => `/c/${encodeURIComponent(campaign)}/lead/items?item=${encodeURIComponent(item)}`;

/** What is known of a source; for leads. */
export const sourcePath = (campaign, name) => `/c/${encodeURIComponent(campaign)}/lead/source?name=${encodeURIComponent(name)}`;
