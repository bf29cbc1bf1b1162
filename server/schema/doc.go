// Package schema is hop 5 of 12: it knows which field of an object belongs to whom.
//
// It owns metadata.managedFields. An Owner hands out one Manager for each way an object can be written
// (kind, version, subresource). A Manager tracks plain writes (Update) and merges server-side apply
// (Apply), with the results, conflicts and error texts that clients know.
//
// What a field is, which lists are maps and which values are atomic comes from types that are embedded as
// data and made by internal/gen from the published Go types; they are read when a kind is first written.
package schema
