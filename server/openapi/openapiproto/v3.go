package openapiproto

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// NewV3 returns the encoding of a v3 document, with the field numbers of openapi.v3.Document.
func NewV3() Encoder {
	ref := &message{fields: map[string]field{"$ref": text(1), "summary": text(2), "description": text(3)}}
	orRef := func(plain Encoder) Encoder { return choose(one(1, plain), one(2, ref.body)) }
	plain := &message{extensions: 36}
	schema := orRef(plain.body)
	plain.fields = map[string]field{
		"nullable": flag(1), "readOnly": flag(3), "writeOnly": flag(4), "externalDocs": one(6, docs()),
		"example": one(7, anyBody), "deprecated": flag(8), "title": text(9), "multipleOf": number(10), "maximum": number(11),
		"exclusiveMaximum": flag(12), "minimum": number(13), "exclusiveMinimum": flag(14), "maxLength": integer(15),
		"minLength": integer(16), "pattern": text(17), "maxItems": integer(18), "minItems": integer(19),
		"uniqueItems": flag(20), "maxProperties": integer(21), "minProperties": integer(22), "required": texts(23),
		"enum": many(24, anyBody), "type": text(25), "allOf": many(26, schema), "oneOf": many(27, schema),
		"anyOf": many(28, schema), "not": one(29, plain.body), "items": one(30, wrap(one(1, schema))),
		"properties": one(31, table(1, schema)), "additionalProperties": one(32, schemaOrBool(schema)),
		"default": scalarDefault, "description": text(34), "format": text(35),
	}
	content := table(1, (&message{extensions: 5, fields: map[string]field{"schema": one(1, schema)}}).body)
	param := orRef((&message{extensions: 14, fields: map[string]field{
		"name": text(1), "in": text(2), "description": text(3), "required": flag(4), "deprecated": flag(5),
		"schema": one(10, schema), "content": one(13, content),
	}}).body)
	response := orRef((&message{extensions: 5, fields: map[string]field{"description": text(1), "content": one(3, content)}}).body)
	request := orRef((&message{extensions: 4, fields: map[string]field{
		"description": text(1), "content": one(2, content), "required": flag(3),
	}}).body)
	operation := (&message{extensions: 13, fields: map[string]field{
		"tags": texts(1), "summary": text(2), "description": text(3), "externalDocs": one(4, docs()), "operationId": text(5),
		"parameters": many(6, param), "requestBody": one(7, request), "responses": one(8, table(2, response)),
		"deprecated": flag(10),
	}}).body
	item := (&message{extensions: 14, fields: map[string]field{
		"$ref": text(1), "summary": text(2), "description": text(3), "get": one(4, operation), "put": one(5, operation),
		"post": one(6, operation), "delete": one(7, operation), "options": one(8, operation), "head": one(9, operation),
		"patch": one(10, operation), "trace": one(11, operation), "parameters": many(13, param),
	}}).body
	scheme := orRef((&message{extensions: 9, fields: map[string]field{
		"type": text(1), "description": text(2), "name": text(3), "in": text(4), "scheme": text(5), "bearerFormat": text(6),
	}}).body)
	components := (&message{extensions: 10, fields: map[string]field{
		"schemas": one(1, table(1, schema)), "securitySchemes": one(7, table(1, scheme)),
	}}).body
	info := (&message{extensions: 7, fields: map[string]field{"title": text(1), "description": text(2), "version": text(6)}}).body
	return (&message{extensions: 9, fields: map[string]field{
		"openapi": text(1), "info": one(2, info), "paths": one(4, table(1, item)), "components": one(5, components),
	}}).body
}

// scalarDefault is a default value. The message knows numbers, booleans and strings only.
func scalarDefault(b []byte, v any) []byte {
	var content []byte
	switch v := v.(type) {
	case float64:
		content = protowire.AppendFixed64(protowire.AppendTag(nil, 1, protowire.Fixed64Type), math.Float64bits(v))
	case bool:
		content = protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), protowire.EncodeBool(v))
	case string:
		content = appendMessage(nil, 3, []byte(v))
	}
	return appendMessage(b, 33, content)
}
