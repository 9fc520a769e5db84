// Validates values against definitions of a JSON Schema, or the whole of it: validate.mjs SCHEMA VALUES.jsonl PROBLEMS.txt
import { readFileSync, writeFileSync } from "node:fs";
import { Ajv2020 } from "ajv/dist/2020.js";

const [schema, values, problems] = process.argv.slice(2);
const ajv = new Ajv2020({ strict: false, validateFormats: false });
ajv.addSchema(JSON.parse(readFileSync(schema, "utf8")), "acp");
const wrong = [];
for (const line of readFileSync(values, "utf8").split("\n").filter(Boolean)) {
  const { name, seed, value } = JSON.parse(line);
  const validate = ajv.getSchema(name ? `acp#/$defs/${name}` : "acp");
  if (!validate(value)) {
    wrong.push(`${name || "a message"} (${seed}): ${ajv.errorsText(validate.errors)}: ${JSON.stringify(value)}\n`);
  }
}
writeFileSync(problems, wrong.join(""));
