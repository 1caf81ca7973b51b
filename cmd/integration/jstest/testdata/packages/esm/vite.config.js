export default { build: { lib: { entry: "one.js", formats: ["es"], fileName: () => "one.js" } } };
