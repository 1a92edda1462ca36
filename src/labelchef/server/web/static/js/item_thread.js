// The thread of an item on the page of the item, for leads.
import { call } from "./api.js";
import { $ } from "./dom.js";
import { threadBox, threadPath } from "./thread.js";

const box = $("#discussion-box");
const thread = await call("GET", threadPath(box.dataset.campaign, box.dataset.item));
box.replaceChildren(threadBox(box.dataset.campaign, thread, { lead: true }));
