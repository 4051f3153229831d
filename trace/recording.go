package trace

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"go.k6.io/k6/js/common"
	"go.k6.io/k6/lib/fsext"

	"github.com/safeqps/xk6-safeqps/llm/tokens"
	"github.com/safeqps/xk6-safeqps/llm/wire"
	"github.com/safeqps/xk6-safeqps/trace/format"
	"github.com/safeqps/xk6-safeqps/trace/workload"
)

// DefaultSeed is the seed where none is given. It is printed with each trace.
const DefaultSeed = 0

// recording is an opened or generated trace. There is one in a process, whatever the number of VUs, and nobody changes
// it.
type recording struct {
	*schedule
	id          string
	trace       *format.Trace
	plan        *workload.Plan
	planOptions workload.Options
	api         wire.API
	seed        uint64
	endless     bool          // loop: true
	lasts       time.Duration // to its end, which may be after its last row
	summary     func() format.Summary

	plansMu sync.RWMutex
	plans   map[tokens.Calibration]*workload.Plan // of calibrations that came later
}

// Info says what a trace is that this process has opened: what results must name so that a run can be repeated.
type Info struct {
	ID     string `json:"id"`   // as scenarios refer to it
	Name   string `json:"name"` // of the file, as the script gives it; "generated"
	Digest string `json:"digest,omitempty"`
	Rows   int    `json:"rows"`
	Seed   uint64 `json:"seed"`
	// Rate is the mean rate of the whole trace, in requests per second (format.Trace.OfferedRate): that of a recording is
	// that of its gaps, which a loop goes on with. 0 for a trace of one instant.
	Rate   float64        `json:"rate,omitempty"`
	Labels []format.Label `json:"labels,omitempty"` // what was done to it

	// Synthetic prompts are generated text or token ids, if only of some rows; Calibrated ones were made to the served model's own count.
	Synthetic  bool `json:"synthetic"`
	Calibrated bool `json:"calibrated"`
	// IgnoreEOS: answers are forced to the trace's length.
	IgnoreEOS bool `json:"ignore_eos"`
}

// Infos lists the traces that this process has opened, in the order of their ids.
func Infos() []Info {
	found := map[string]Info{}
	schedules.Range(func(id, s any) bool {
		if info := s.(*schedule).info; info != nil { //nolint:forcetypeassert // publish stores nothing else
			found[id.(string)] = info() //nolint:forcetypeassert // likewise
		}

		return true
	})
	list := make([]Info, 0, len(found))
	for _, id := range sortedKeys(found) {
		list = append(list, found[id])
	}

	return list
}

// readOptions are the options by which a trace file is read, and then changed.
type readOptions struct {
	Format       format.Options
	Speed, Rate  float64
	Laps         int
	Endless      bool
	Classes      []classBound
	SamePrefixes bool
}

// classBound is a class of rows by the length of their prompts: up to and including Most tokens.
type classBound struct {
	Name string
	Most float64 // +Inf: whatever is longer than the others allow
}

// requestOptions are the options by which rows become requests.
type requestOptions struct {
	API             wire.API
	Seed            uint64
	Calibration     tokens.Calibration
	IDs             *tokens.IDRange
	Prompts, Fit    string
	IgnoreHashIDs   bool
	IgnoreEOS       bool
	UnstreamedShare float64
}

const windowForm = `an object such as {from: "5m", to: "15m"}, both ends included`

// readReadOptions reads the options of trace.open that concern the file.
func (o *options) readReadOptions() readOptions {
	r := readOptions{Format: format.Options{
		Format:      format.Name(o.text("format")),
		Unit:        format.Unit(o.text("unit")),
		BlockSize:   int(o.whole("blockSize", 0, 1, "the tokens that one hash id stands for")),
		Fields:      o.texts("fields", `an object of this project's field names and the file's, e.g. {timestamp: "ts"}`),
		ZeroOutput:  format.ZeroOutput(o.choice("zeroOutput", string(format.DropZeroOutput), string(format.KeepZeroOutput))),
		SkipBadRows: o.flag("skipBadRows"),
		TimeZero:    format.TimeZero(o.choice("timeZero", string(format.FirstRow), string(format.FileZero))),
		Limit:       int(o.whole("limit", 0, 1, "a number of rows")),
	}}
	if w := o.object("window", windowForm); w != nil {
		window := format.Window{To: -1}
		window.From, _ = w.duration("from", "a time of the trace", notNegative)
		if to, ok := w.duration("to", "a time of the trace", notNegative); ok {
			window.To = to
		}
		o.done(w)
		r.Format.Window = &window
	}
	r.Speed = o.positive("speed", 0, "how many times as fast as recorded: a number")
	r.Rate = o.positive("rate", 0, "a mean number of requests per second")
	if r.Speed > 0 && r.Rate > 0 {
		o.wrong("rate", r.Rate, "speed or rate, not both")
	}
	if v, ok := o.get("loop"); ok {
		if b, isBool := v.(bool); isBool {
			r.Endless = b
		} else {
			r.Laps = int(o.number("loop", 0, "true, or how often the trace is replayed in all: a whole number, 1 or more",
				func(f float64) bool { return f >= 1 && f <= 1e9 && f == float64(int(f)) }))
		}
	}
	r.SamePrefixes = o.flag("samePrefixes")
	r.Classes = o.readClasses()

	return r
}

const classesForm = `the longest prompt of each class in tokens, e.g. {short: 512, typical: 4096, long: 32768, extreme: Infinity}`

func (o *options) readClasses() []classBound {
	c := o.object("classes", classesForm)
	if c == nil {
		return nil
	}
	var bounds []classBound
	for _, name := range sortedKeys(c.values) {
		most := c.number(name, 0, "the longest prompt of the class in tokens, 1 or more", func(f float64) bool { return f >= 1 })
		bounds = append(bounds, classBound{name, most})
	}
	o.done(c)
	slices.SortStableFunc(bounds, func(a, b classBound) int { return cmp.Compare(a.Most, b.Most) })

	return bounds
}

// readRequestOptions reads the options of trace.open and trace.generate that concern requests.
func (o *options) readRequestOptions() requestOptions {
	r := requestOptions{
		Seed:            uint64(o.whole("seed", DefaultSeed, 0, "a seed")), // #nosec G115 -- not negative
		IgnoreHashIDs:   o.flag("ignoreHashIds"),
		IgnoreEOS:       o.flag("ignoreEos"),
		UnstreamedShare: 1 - o.share("streamShare", 1),
	}
	if ids := o.object("tokenIds", `an object: {vocabulary: 128256}, or a range of ids {low: 1000, high: 120000}`); ids != nil {
		r.IDs = ids.readIDs(o)
	}
	switch v, _ := o.get("prompts"); v.(type) {
	case map[string]any:
		p := o.object("prompts", "")
		r.Prompts = p.text("file")
		r.Fit = p.choice("fit", append([]string{""}, tokens.Names()...)...)
		if r.Prompts == "" {
			p.wrong("file", nil, "the path of a file of prompts")
		}
		o.done(p)
	default:
		r.Prompts = o.text("prompts")
	}
	if c := o.object("calibration", calibrationForm); c != nil {
		r.Calibration = c.readCalibration()
		o.done(c)
	}
	preferred := string(wire.Chat)
	if r.IDs != nil {
		preferred = string(wire.Completions)
	}
	r.API = o.readAPI(wire.API(preferred))

	return r
}

// readAPI is the option `api`: whose request bodies next() and at() make.
func (o *options) readAPI(otherwise wire.API) wire.API {
	name := o.text("api")
	if name == "" {
		return otherwise
	}
	api, err := wire.ParseAPI(name)
	if err != nil {
		o.wrong("api", name, `"chat", "completions", "responses" or "messages"`)
	}

	return api
}

func (o *options) readIDs(of *options) *tokens.IDRange {
	defer of.done(o)
	if o.has("vocabulary") {
		ids, err := tokens.SafeIDs(int(o.whole("vocabulary", 0, 1, "the size of the model's vocabulary")))
		if err != nil {
			o.wrong("vocabulary", o.values["vocabulary"], "a vocabulary of which enough ids are safe: "+err.Error())
		}

		return &ids
	}
	ids := tokens.IDRange{
		Low: int(o.whole("low", -1, 0, "a token id")), High: int(o.whole("high", -1, 0, "a token id")),
	}
	if err := ids.Validate(); err != nil {
		o.wrong("low", o.values["low"], "a range of token ids: "+err.Error())
	}

	return &ids
}

const calibrationForm = `an object such as {perWord: 1.02, overhead: 11}, as trace.calibrate() gives it`

// The bounds of a calibration that a script may give. No tokenizer in use joins five words into one token, or makes more
// tokens of a word than it has bytes; a fit may put the overhead a rounding below zero; and no chat template is longer than
// a model's context.
const (
	minPerWord  = 0.2
	maxPerWord  = 16
	minOverhead = -1
	maxOverhead = 100_000
)

func (o *options) readCalibration() tokens.Calibration {
	c := tokens.Calibration{
		PerWord: o.number("perWord", 1, fmt.Sprintf("tokens per word, from %g to %d", minPerWord, maxPerWord),
			func(f float64) bool { return f >= minPerWord && f <= maxPerWord }),
		Overhead: o.number("overhead", 0, fmt.Sprintf("tokens of a prompt without words, from %d to %d", minOverhead, maxOverhead),
			func(f float64) bool { return f >= minOverhead && f <= maxOverhead }),
		Source: "script",
	}
	// What trace.calibrate() adds for people to read.
	o.get("source")
	o.whole("observations", 0, 0, "how many prompts were counted")
	o.number("worstError", 0, "a relative error, 0 or more", func(f float64) bool { return f >= 0 && !math.IsInf(f, 0) })

	return c
}

// files are what the init context can read. k6 archives what was read through it.
type files struct {
	env    *common.InitEnvironment
	digest hash.Hash // of all that was read
}

func (f files) absolute(name string) string {
	if name = strings.TrimPrefix(name, "file://"); name == "" {
		return f.env.CWD.Path
	}

	return fsext.Abs(f.env.CWD.Path, name)
}

func (f files) read(name string) ([]byte, error) {
	fs, ok := f.env.FileSystems["file"]
	if !ok {
		return nil, errors.New("this script has no access to files")
	}
	absolute := f.absolute(name)
	isDir, err := fsext.IsDir(fs, absolute)
	if errors.Is(err, fsext.ErrPathNeverRequestedBefore) {
		return nil, fmt.Errorf("%s: each VU must open the same files: this one was not opened when the script was first run", name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if isDir {
		return nil, fmt.Errorf("%s: expected a file, got a directory", name)
	}
	data, err := fsext.ReadFile(fs, absolute)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f.digest.Write(data)

	return data, nil
}

func (f files) trace(name string, o format.Options) (*format.Trace, error) {
	data, err := f.read(name)
	if err != nil {
		return nil, err
	}

	return format.Read(name, bytes.NewReader(data), o) //nolint:wrapcheck // it names the file
}

// openFile reads a trace file and does to it what the options say.
func openFile(name string, f files, read readOptions, ask requestOptions) (*recording, error) {
	t, err := f.trace(name, read.Format)
	if err != nil {
		return nil, err
	}
	switch {
	case read.Speed > 0:
		t, err = format.Speed(t, read.Speed)
	case read.Rate > 0:
		t, err = format.Rate(t, read.Rate)
	}
	if err == nil && read.Laps > 1 {
		t, err = format.Loop(t, format.LoopOptions{Laps: read.Laps, SamePrefixes: read.SamePrefixes})
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(read.Classes) > 0 {
		t = classify(t, read.Classes)
	}

	r, err := newRecording(t, f, read, ask)
	if err != nil {
		return nil, err
	}
	r.recorded = true

	return r, nil
}

// newRecording prepares a trace for replay.
func newRecording(t *format.Trace, f files, read readOptions, ask requestOptions) (*recording, error) {
	o := workload.Options{
		Seed: ask.Seed, Calibration: ask.Calibration, IDs: ask.IDs, IgnoreHashIDs: ask.IgnoreHashIDs,
		UnstreamedShare: ask.UnstreamedShare, IgnoreEOS: ask.IgnoreEOS,
	}
	if ask.Prompts != "" {
		content, err := f.read(ask.Prompts)
		if err != nil {
			return nil, fmt.Errorf("prompts: %w", err)
		}
		if o.Pool, err = workload.NewPool(ask.Prompts, content); err != nil {
			return nil, fmt.Errorf("prompts: %w", err)
		}
	}
	if ask.Fit != "" {
		var err error
		if o.Fit, err = tokens.New(ask.Fit); err != nil {
			return nil, fmt.Errorf("prompts.fit: %w", err)
		}
	}
	s := &schedule{rows: t.Rows}
	if rate, ok := t.MeanRate(); t.Length > s.span() {
		s.period = t.Length
	} else if ok {
		// One mean gap after the last row, so that the mean rate holds across the seam.
		s.period = max(s.span(), t.Span()+time.Duration(math.Round(float64(time.Second)/rate)))
	}
	if s.period <= 0 && read.Endless {
		return nil, errors.New("loop: a trace of one row, or of one instant, has no length to repeat")
	}
	// Scenarios with arrivals of their own go on behind the last row of any trace.
	o.Loop = &workload.Loop{Period: max(s.period, s.span()), SamePrefixes: read.SamePrefixes}
	plan, err := workload.NewPlan(t, o)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the trace and the row
	}

	return &recording{
		schedule: s, trace: t, plan: plan, planOptions: o, api: ask.API, seed: ask.Seed, endless: read.Endless,
		lasts:   max(t.Length, s.span()),
		summary: sync.OnceValue(func() format.Summary { return format.Summarize(t) }),
	}, nil
}

// publish makes a recording known to the executor, under an id that is a digest of all that it depends on: the same
// script and files give the same id in every process, and an archive keeps it.
func (r *recording) publish(stem, options string, f files) {
	f.digest.Write([]byte(options))
	r.id = stem + "-" + hex.EncodeToString(f.digest.Sum(nil))[:12]
	t := r.trace
	r.info = func() Info {
		return Info{
			ID: r.id, Name: t.Name, Digest: t.Digest, Rows: len(t.Rows), Seed: r.seed, Rate: r.meanRate(), Labels: t.Labels,
			Synthetic: r.isSynthetic(), Calibrated: r.isCalibrated(), IgnoreEOS: r.planOptions.IgnoreEOS,
		}
	}
	r.ideal = r.idealPrefixHitRatio
	r.shares = t.HasHashIDs() && !r.planOptions.IgnoreHashIDs
	publish(r.id, r.schedule)
}

func (r *recording) meanRate() float64 {
	rate, _ := r.trace.OfferedRate()

	return rate
}

func (r *recording) isSynthetic() bool {
	return r.planOptions.Pool == nil && slices.ContainsFunc(r.trace.Rows, func(row format.Row) bool { return !row.IsLiteral() })
}

func (r *recording) isCalibrated() bool {
	r.plansMu.RLock()
	defer r.plansMu.RUnlock()

	return r.planOptions.Calibration != (tokens.Calibration{}) || len(r.plans) > 0
}

// idealPrefixHitRatio is nil where the prompts' text is not this module's.
func (r *recording) idealPrefixHitRatio(order []replay) *float64 {
	if r.planOptions.Pool != nil {
		return nil
	}
	rows := r.trace.Rows
	cache := format.NewPrefixCache(rows, r.trace.BlockSize)
	sent := make(map[int]bool) // of the rows whose prompt is like no other: sent again, it is like itself
	tokens, hits := int64(0), int64(0)
	for _, next := range order {
		row := &rows[next.row%len(rows)]
		if row.InputTokens == format.Unknown || row.IsLiteral() {
			return nil
		}
		hit := 0
		switch {
		case len(row.HashIDs) > 0 && !r.planOptions.IgnoreHashIDs:
			text := uint64(next.row / len(rows)) // #nosec G115 -- not negative
			if r.planOptions.Loop != nil && r.planOptions.Loop.SamePrefixes {
				text = 0
			}
			hit = cache.Serve(text, row.HashIDs, int(row.InputTokens)).Tokens
		case sent[next.row]:
			hit = int(row.InputTokens)
		default:
			sent[next.row] = true
		}
		if next.counts {
			tokens += int64(row.InputTokens)
			hits += int64(hit)
		}
	}
	if tokens == 0 {
		return nil
	}
	ratio := float64(hits) / float64(tokens)

	return &ratio
}

// classify gives each row the first class whose bound its prompt keeps; a row that keeps none, or whose length is not
// known, keeps the class that it had.
func classify(t *format.Trace, bounds []classBound) *format.Trace {
	out := *t
	out.Rows = make([]format.Row, len(t.Rows))
	for i, row := range t.Rows {
		for _, b := range bounds {
			if row.InputTokens != format.Unknown && float64(row.InputTokens) <= b.Most {
				row.Class = b.Name

				break
			}
		}
		out.Rows[i] = row
	}

	return &out
}
