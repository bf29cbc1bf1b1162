package benchrun

import (
	"fmt"
	"os"
	"regexp"
	"time"
)

// Settings say how much is measured.
type Settings struct {
	Starts     int           // cold starts of each system
	Settle     time.Duration // rest before memory is read
	Idle       time.Duration // Window of the idle CPU measurement
	Sequential int           // requests of each kind, one after the other
	ListSize   int           // Objects in the listed namespace
	Window     time.Duration // how long each 32-way measurement lasts
	Parallel   int
	Watchers   []int
	Writes     int // writes that are fanned out to the watchers
	Objects    int // objects for the memory measurement, and in the deleted namespace

	Wakes    int            // samples of each loop that is woken
	Replicas int            // Pods of the Deployment
	Nodes    int            // nodes of the idle measurement
	Scale    float64        // factor for the sizes of the schedule suite
	Limit    time.Duration  // longest wait for one result of loops and scheduler
	Large    bool           // run the largest workload on upstream too
	Only     *regexp.Regexp // measurements of all suites but front to run
	Bin      string         // the path of proa; the parts of a node are beside it

	FloodPriority string // with which priority the flood runs: idle, nice or normal
}

// Wanted tells whether a measurement is to be run.
func (s Settings) Wanted(name string) bool { return s.Only == nil || s.Only.MatchString(name) }

// Scaled returns a number of nodes or Pods at the scale of the run.
func (s Settings) Scaled(n int) int { return max(int(float64(n)*s.Scale), 1) }

// Progress prints a line to standard error.
func Progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}
