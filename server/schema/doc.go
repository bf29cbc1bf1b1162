// Package schema is hop 5 of 12: it tracks the owners of fields, for server-side apply.
//
// It owns metadata.managedFields. An Owner hands out one Manager for each way an object can be written (kind, version,
// subresource). A Manager tracks ordinary writes (Update) and merges server-side apply (Apply), with upstream's
// results, conflicts and error texts.
//
// Which fields there are, which lists are maps and which values are atomic comes from types that are embedded as data
// and made by internal/gen from the published Go types; they are read when a kind is first written.
package schema
