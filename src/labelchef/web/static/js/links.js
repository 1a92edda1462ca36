// Addresses that several pages use.

/** Where a lead sees an item. */
export const itemAddress = (campaign, key) => `/c/${encodeURIComponent(campaign)}/lead/items?item=${encodeURIComponent(key)}`;
