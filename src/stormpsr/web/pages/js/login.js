import { loadTexts } from "./shared.js";

loadTexts();
