export const readFile = async (url) => (await fetch(url)).text();
