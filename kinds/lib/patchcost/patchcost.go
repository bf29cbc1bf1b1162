// Package patchcost estimates what it takes to apply a JSON patch, whoever sends it: the library copies a list for each
// item that is inserted or removed.
package patchcost

import (
	"bytes"
	"strconv"
	"strings"
)

// maxCopies limits the items that are copied for one patch.
const maxCopies = 1 << 26

// Shifts returns how often an operation of a JSON patch inserts or removes an item of a list.
func Shifts(op, path, from string) (n int) {
	count := func(path string) {
		item := path[strings.LastIndex(path, "/")+1:]
		if _, notANumber := strconv.Atoi(item); item == "-" || notANumber == nil {
			n++
		}
	}
	switch op {
	case "add", "remove", "copy":
		count(path)
	case "move":
		count(path)
		count(from)
	}
	return n
}

// Exceeds reports whether so many items cannot be inserted into and removed from the lists of a JSON document in
// reasonable time.
func Exceeds(shifts int, doc []byte) bool {
	return shifts*(bytes.Count(doc, []byte(","))+shifts) > maxCopies
}
