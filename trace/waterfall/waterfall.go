// Package waterfall prints a trace for people: a row for each span, in the order of the twelve hops, with a bar that tells waiting from
// working.
package waterfall

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"proa.dev/hop"
	"proa.dev/trace"
)

// Options are how a trace is printed.
type Options struct {
	// Width is the number of columns; 0 stands for 100.
	Width int
	// Color allows escape sequences for colours. No meaning depends on a colour alone.
	Color bool
	// ASCII draws bars with characters that every terminal has.
	ASCII bool
	// All shows every span; otherwise the hops and steps of what took little time are left out.
	All bool
	// Printable makes a text of another origin safe for a terminal.
	Printable func(string) string
}

// The widths of columns, and how many rows there are without All.
const (
	minWidth, defaultWidth = 60, 100
	markWidth              = 2
	timeWidth              = 8
	maxRows                = 200
	fewRows                = 40 // up to so many records all of them are shown
)

// printer prints one trace.
type printer struct {
	Options
	w        io.Writer
	t        *trace.Trace
	whole    time.Duration // that the bars show
	label    int           // columns of the names
	bar      int           // columns of the bars
	children map[string][]*trace.Span
	records  int // whole records without the deliveries of watches
}

// Write prints a trace.
func Write(w io.Writer, t *trace.Trace, o Options) {
	p := &printer{Options: o, w: w, t: t, children: map[string][]*trace.Span{}}
	if p.Width == 0 {
		p.Width = defaultWidth
	}
	p.Width = max(p.Width, minWidth)
	rest := p.Width - markWidth - 2*(timeWidth+1) - 1
	p.label = min(44, rest*6/10)
	p.bar = rest - p.label - 1
	for i := range t.Spans {
		s := &t.Spans[i]
		if !s.IsAnswer() { // a client may come much later, and is drawn at the end then
			p.whole = max(p.whole, s.Start.Add(s.Took).Sub(t.Start))
		}
		p.children[s.Parent] = append(p.children[s.Parent], s)
		if s.Parent == "" && s.HopName != hop.Watch.String() {
			p.records++
		}
	}
	p.header()
	left := p.rows()
	p.footer(left)
}

// text makes a text of another origin fit into a row.
func (p *printer) text(s string) string {
	if p.Printable != nil {
		s = p.Printable(s)
	}
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(s)
}

func (p *printer) header() {
	t := p.t
	where := ""
	if t.Object.Namespace != "" {
		where = " in " + t.Object.Namespace
	}
	line := strings.TrimPrefix(t.Name, "") + where
	if t.Command != "" {
		line += ", " + t.Command
	}
	if t.User != "" {
		line += " by " + t.User
	}
	fmt.Fprintf(p.w, "%s, %s\n\n", p.text(line), t.Start.UTC().Format("2006-01-02 15:04:05 UTC"))
	left := strings.Repeat(" ", markWidth) + column("start", timeWidth, true) + "  " + column("hop and work", p.label, false) +
		column("took", timeWidth, true) + "  "
	fmt.Fprintln(p.w, strings.TrimRight(left+p.scale(), " "))
}

// scale returns the line above the bars: the milestones by their first letters, where they are.
func (p *printer) scale() string {
	line := []rune(strings.Repeat(" ", p.bar))
	for _, m := range p.t.Milestones {
		at := p.column(m.At)
		for at < p.bar-1 && line[at] != ' ' {
			at++
		}
		line[at] = []rune(milestoneMark(m.Name))[0]
	}
	return string(line)
}

// milestoneMark returns the letter of a milestone above the bars.
func milestoneMark(name string) string {
	if name == "Sandbox" {
		return "B"
	}
	if name == "Started" {
		return "T"
	}
	return name[:1]
}

// column returns the column of the bar in which a moment is.
func (p *printer) column(at time.Duration) int {
	if p.whole <= 0 {
		return 0
	}
	return min(p.bar-1, max(0, int(int64(p.bar)*int64(at)/int64(p.whole))))
}

// group is a hop, or the hops 2 to 7 of a request, with its records.
type group struct {
	title string
	spans []*trace.Span
}

// groups returns the whole records in the order of the hops. A write is shown at the hop of who made it.
func (p *printer) groups() []group {
	var titles = map[int]string{1: "1    client", 2: "2-7  API server", 8: "8    watch", 9: "9    control", 10: "10   schedule",
		11: "11   node", 12: "12   network"}
	byHop := map[int][]*trace.Span{}
	root := true
	for _, s := range p.children[""] {
		at := s.Hop
		if at == 0 {
			at = hopOfActor(s, root)
			root = false
		}
		byHop[at] = append(byHop[at], s)
	}
	var out []group
	for h := 1; h <= hop.Count; h++ {
		if len(byHop[h]) > 0 {
			out = append(out, group{titles[h], byHop[h]})
		}
	}
	return out
}

// hopOfActor returns the hop of the actor that made a write. The first write of a trace is the request that it is about.
func hopOfActor(s *trace.Span, isRoot bool) int {
	switch {
	case isRoot || s.Hidden:
		return int(hop.Authenticate)
	case strings.HasPrefix(s.Actor, "system:node:"):
		return int(hop.Node)
	case s.Actor == "system:kube-scheduler":
		return int(hop.Schedule)
	case strings.HasPrefix(s.Actor, "system:serviceaccount:kube-system:"):
		return int(hop.Control)
	}
	return int(hop.Authenticate)
}

// rows prints the rows of all hops and returns how many spans have none.
func (p *printer) rows() (left int) {
	printed := 0
	for _, g := range p.groups() {
		fmt.Fprintln(p.w, p.paint(bold, g.title))
		longest := slices.MaxFunc(g.spans, func(a, b *trace.Span) int { return cmp.Compare(a.Took, b.Took) })
		answer := slices.IndexFunc(g.spans, (*trace.Span).IsAnswer) // of several Pods the first one is of interest
		for i, s := range g.spans {
			if s != longest && i != answer && !p.All && (printed >= maxRows || p.isMinor(s)) {
				left += 1 + p.countBelow(s)
				continue
			}
			printed++
			p.row(s, 0)
			left += p.below(s, 1, &printed)
		}
	}
	return left
}

// isMinor tells whether a whole record is left out: the delivery of a watch, and in a long trace what took little time.
func (p *printer) isMinor(s *trace.Span) bool {
	isShort := s.HopName == hop.Watch.String() || p.records > fewRows && s.Took < p.whole/100
	return isShort && !s.Critical && !s.Open && s.Error == ""
}

// below prints the parts of a span that are worth it.
func (p *printer) below(s *trace.Span, depth int, printed *int) (left int) {
	for _, c := range p.children[s.ID] {
		if !p.All && !p.isWorthARow(s, c) {
			left += 1 + p.countBelow(c)
			continue
		}
		*printed++
		p.row(c, depth)
		left += p.below(c, depth+1, printed)
	}
	return left
}

// isWorthARow tells whether a part of a span says more than the span does.
func (p *printer) isWorthARow(parent, part *trace.Span) bool {
	isRequest := parent.Hop == 0 && parent == p.children[""][p.firstWrite()]
	isHop := part.Name == part.HopName
	return part.Error != "" || isRequest || !isHop && part.Took >= p.whole/20 && len(p.children[parent.ID]) > 1
}

// firstWrite returns the place of the request that the trace is about among the whole records.
func (p *printer) firstWrite() int {
	for i, s := range p.children[""] {
		if s.Hop == 0 {
			return i
		}
	}
	return 0
}

func (p *printer) countBelow(s *trace.Span) (n int) {
	for _, c := range p.children[s.ID] {
		n += 1 + p.countBelow(c)
	}
	return n
}

// row prints one span.
func (p *printer) row(s *trace.Span, depth int) {
	mark, color := " ", ""
	switch {
	case s.Error != "":
		mark, color = "!", red
	case s.Open:
		mark, color = ">", yellow
	case s.Critical:
		mark = "*"
	}
	name := strings.Repeat("  ", depth)
	if depth > 0 && s.Hop != 0 && s.Name == s.HopName {
		name += fmt.Sprintf("%d ", s.Hop)
	}
	name += p.text(s.Name)
	if s.Hidden && s.HopName != "" {
		name += " (" + s.HopName + ")"
	}
	if depth == 0 {
		name = p.recordName(s, name)
	}
	line := mark + " " + column(trace.Seconds(s.Start.Sub(p.t.Start)), timeWidth, true) + "  " + column(name, p.label, false) +
		column(trace.Seconds(s.Took), timeWidth, true) + "  "
	fmt.Fprintln(p.w, strings.TrimRight(p.paint(color, line)+p.drawBar(s), " "))
	note := s.Error
	if note == "" && depth > 0 {
		note = s.Detail
	}
	if note != "" {
		indent := strings.Repeat(" ", markWidth+timeWidth+2+2*depth+2)
		fmt.Fprintln(p.w, p.paint(color, indent+strings.TrimRight(column(p.text(note), p.Width-len(indent), false), " ")))
	}
}

// recordName returns the name of a whole record with its object and its actor. Of deliveries the actor comes first: it is what tells them
// apart, and the end of a long name is cut off.
func (p *printer) recordName(s *trace.Span, name string) string {
	if s.Object.Name != "" {
		name += " " + p.text(s.Object.Name)
	}
	actor := shortActor(s.Actor)
	if actor == "" {
		return name
	}
	if what, isDelivery := strings.CutPrefix(name, "deliver "); isDelivery && s.HopName == hop.Watch.String() {
		return "to " + p.text(actor) + ": " + what
	}
	return name + ", " + p.text(actor)
}

// shortActor returns the name of an actor without what all of its sort have in common.
func shortActor(actor string) string {
	for _, prefix := range []string{"system:serviceaccount:kube-system:", "system:node:", "system:"} {
		actor = strings.TrimPrefix(actor, prefix)
	}
	return strings.TrimSuffix(actor, "-controller")
}

// drawBar draws a span: waiting and working with characters of their own, and an arrow at the end of one that has not ended.
func (p *printer) drawBar(s *trace.Span) string {
	wait, work, more := "░", "█", "▶"
	if p.ASCII {
		wait, work, more = ".", "#", ">"
	}
	from := p.column(s.Start.Sub(p.t.Start))
	turn := p.column(s.Start.Add(s.Wait).Sub(p.t.Start))
	to := p.column(s.Start.Add(s.Took).Sub(p.t.Start))
	n := max(1, to-from)
	if from+n > p.bar {
		n = p.bar - from
	}
	waits := min(n, max(0, turn-from))
	if s.Wait >= s.Took && s.Wait > 0 {
		waits = n
	}
	bar := strings.Repeat(wait, waits) + strings.Repeat(work, n-waits)
	if s.Open {
		_, size := utf8.DecodeLastRuneInString(bar)
		bar = bar[:len(bar)-size] + more
	}
	color := ""
	switch {
	case s.Error != "":
		color = red
	case s.Open:
		color = yellow
	case s.Critical:
		color = cyan
	}
	return strings.Repeat(" ", from) + p.paint(color, bar)
}

// footer prints what the trace comes to, and what is not in it.
func (p *printer) footer(left int) {
	t := p.t
	fmt.Fprintln(p.w)
	if len(t.Milestones) > 0 {
		var parts []string
		for _, m := range t.Milestones {
			parts = append(parts, milestoneMark(m.Name)+" "+m.Name+" "+trace.Seconds(m.At))
		}
		fmt.Fprintln(p.w, strings.Join(parts, ", "))
	}
	wait, work := "░", "█"
	if p.ASCII {
		wait, work = ".", "#"
	}
	fmt.Fprintf(p.w, "%s waiting  %s working  * on the critical path\n\n", wait, work)
	fmt.Fprintln(p.w, p.paint(bold, p.text(t.Summary)+"."))
	if t.Stuck != "" {
		fmt.Fprintln(p.w, p.paint(red, p.text(t.Stuck)+"."))
	}
	for _, note := range []struct {
		n    int
		text string
	}{
		{left, "not shown: %d spans that took little time; --all shows them"},
		{t.Hidden, "hidden: %d spans about objects that you may not get"},
		{t.Dropped, "left out: %d spans, because there are too many"},
		{t.Later, "left out: %d records of what happened after it was ready and quiet"},
	} {
		if note.n > 0 {
			fmt.Fprintf(p.w, note.text+"\n", note.n)
		}
	}
	for _, u := range t.Unseen {
		fmt.Fprintln(p.w, "not seen: the records of "+p.text(u))
	}
}

// The escape sequences of colours.
const (
	bold, red, yellow, cyan = "1", "31", "33", "36"
)

func (p *printer) paint(color, s string) string {
	if !p.Color || color == "" {
		return s
	}
	return "\x1b[" + color + "m" + s + "\x1b[0m"
}

// column cuts a text, or fills it with spaces, to a width.
func column(s string, width int, right bool) string {
	n := utf8.RuneCountInString(s)
	switch {
	case n > width && width > 0:
		return string([]rune(s)[:width-1]) + "…"
	case right:
		return strings.Repeat(" ", width-n) + s
	}
	return s + strings.Repeat(" ", width-n)
}
