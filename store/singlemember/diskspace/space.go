package diskspace

import (
	"errors"
	"fmt"
)

// maxLowest is the free disk space below which even deletions are refused, because the database could not be committed.
const maxLowest = 8 << 20

// ErrFull is the error of a change that was refused because the disk is nearly full. Deletions are still accepted.
var ErrFull = errors.New("the disk of the data folder is nearly full")

// Need is the priority of a change when the disk is nearly full.
type Need int

const (
	// Ordinary is for changes that may not use the reserve.
	Ordinary Need = iota
	// FromReserve is for changes that are needed to start the server or to delete objects.
	FromReserve
	// OnlyDelete is for changes that only delete.
	OnlyDelete
)

// Space is the disk space for changes.
type Space struct {
	// Reserve is the number of bytes that ordinary changes leave free.
	Reserve int64
	// Free is the number of free bytes on the disk, unused that of unused bytes in the database file.
	Free, Unused int64
	// Reuse is the number of unused bytes that compaction has freed since the disk is nearly full.
	Reuse int64
}

// Lowest returns how many bytes of the disk are never used.
func (s Space) Lowest() int64 { return min(s.Reserve/8, maxLowest) }

// Admits reports whether there is space for a change. Small changes fit into unused pages of the database. Large
// changes need contiguous pages, so there must be space that compaction has just freed; and in case they do not find
// contiguous pages, part of the reserve must be free.
func (s Space) Admits(n Need) bool {
	unused := s.Unused >= s.Lowest()
	switch n {
	case Ordinary:
		return s.Free >= s.Reserve || s.Reuse >= max(1, s.Lowest()/8) && s.Free >= s.Reserve/8*3
	case FromReserve:
		return s.Free >= s.Reserve/4 || unused && s.Free >= s.Lowest()
	default:
		return s.Free >= s.Lowest() || unused
	}
}

// Refusal returns the error of a change that is not admitted.
func (s Space) Refusal(n Need) error {
	left := max(s.Free, 0) >> 20
	if n == OnlyDelete {
		return fmt.Errorf("%w: %d MiB are left, too few even for deletions; make room on the disk", ErrFull, left)
	}
	return fmt.Errorf("%w: %d MiB are left, and %d MiB are kept for deletions and restarts; make room on the disk, or delete objects: their room is used again some seconds later",
		ErrFull, left, s.Reserve>>20)
}
