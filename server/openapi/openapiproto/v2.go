package openapiproto

// NewV2 returns the encoding of a v2 document, with the field numbers of openapi.v2.Document.
func NewV2() Encoder {
	schema := &message{extensions: 31}
	schema.fields = map[string]field{
		"$ref": text(1), "format": text(2), "title": text(3), "description": text(4), "default": one(5, anyBody),
		"multipleOf": number(6), "maximum": number(7), "exclusiveMaximum": flag(8), "minimum": number(9),
		"exclusiveMinimum": flag(10), "maxLength": integer(11), "minLength": integer(12), "pattern": text(13),
		"maxItems": integer(14), "minItems": integer(15), "uniqueItems": flag(16), "maxProperties": integer(17),
		"minProperties": integer(18), "required": texts(19), "enum": many(20, anyBody),
		"additionalProperties": one(21, schemaOrBool(schema.body)), "type": one(22, wrap(texts(1))),
		"items": one(23, wrap(one(1, schema.body))), "allOf": many(24, schema.body),
		"properties": one(25, table(1, schema.body)), "discriminator": text(26), "readOnly": flag(27),
		"externalDocs": one(29, docs()), "example": one(30, anyBody),
	}
	bodyParam := &message{extensions: 6, fields: map[string]field{
		"description": text(1), "name": text(2), "in": text(3), "required": flag(4), "schema": one(5, schema.body),
	}}
	query := &message{extensions: 23, fields: map[string]field{
		"required": flag(1), "in": text(2), "description": text(3), "name": text(4), "type": text(6), "format": text(7),
		"uniqueItems": flag(20),
	}}
	path := &message{extensions: 22, fields: map[string]field{
		"required": flag(1), "in": text(2), "description": text(3), "name": text(4), "type": text(5), "format": text(6),
		"uniqueItems": flag(19),
	}}
	param := func(b []byte, v any) []byte {
		o, _ := v.(object)
		switch o["in"] {
		case "body":
			return one(1, bodyParam.body)(b, v)
		case "path":
			return one(2, wrap(one(4, path.body)))(b, v)
		}
		return one(2, wrap(one(3, query.body)))(b, v)
	}
	ref := &message{fields: map[string]field{"$ref": text(1), "description": text(2)}}
	params := many(8, choose(one(1, param), one(2, ref.body)))
	response := &message{extensions: 5, fields: map[string]field{"description": text(1), "schema": one(2, wrap(one(1, schema.body)))}}
	security := table(1, wrap(texts(1)))
	operation := &message{extensions: 13, fields: map[string]field{
		"tags": texts(1), "summary": text(2), "description": text(3), "externalDocs": one(4, docs()),
		"operationId": text(5), "produces": texts(6), "consumes": texts(7), "parameters": params,
		"responses": one(9, table(1, choose(one(1, response.body), one(2, ref.body)))), "schemes": texts(10),
		"deprecated": flag(11), "security": many(12, security),
	}}
	item := &message{extensions: 10, fields: map[string]field{
		"$ref": text(1), "get": one(2, operation.body), "put": one(3, operation.body), "post": one(4, operation.body),
		"delete": one(5, operation.body), "options": one(6, operation.body), "head": one(7, operation.body),
		"patch": one(8, operation.body), "parameters": many(9, choose(one(1, param), one(2, ref.body))),
	}}
	info := &message{extensions: 7, fields: map[string]field{"title": text(1), "version": text(2), "description": text(3)}}
	apiKey := &message{extensions: 5, fields: map[string]field{"type": text(1), "name": text(2), "in": text(3), "description": text(4)}}
	return (&message{extensions: 16, fields: map[string]field{
		"swagger": text(1), "info": one(2, info.body), "paths": one(8, table(2, item.body)),
		"definitions": one(9, table(1, schema.body)), "parameters": one(10, table(1, param)),
		"security": many(12, security), "securityDefinitions": one(13, table(1, wrap(one(2, apiKey.body)))),
	}}).body
}

// docs is a pointer to documentation elsewhere.
func docs() Encoder {
	return (&message{extensions: 3, fields: map[string]field{"description": text(1), "url": text(2)}}).body
}
