package trace

import (
	"reflect"
	"unsafe"
)

// progressFunc gives the share of a scenario that is done, and at most three columns of text: k6 aligns no more.
type progressFunc = func() (float64, []string)

// The symbols with which k6 marks a scenario's bar.
const (
	statusStopping    = '↓'
	statusInterrupted = '✗'
	statusDone        = '✓'
)

// showProgress makes k6's progress bar show what fn says, with a status symbol unless that is 0. It reports false, and
// changes nothing, where k6's bar has another shape than in v1.8 and v2.2.
//
// k6 gives an executor its bar but keeps the package with the bar's options internal, and its scheduler has by then set
// the bar to a constant 0 % "started". The only ways left are a bar that stands still and two fields set by reflection.
// Modify runs the option under the bar's own lock.
func showProgress[B any, M interface{ ~func(*B) }](bar *B, modify func(...M), status rune, fn progressFunc) bool {
	progress, ok := field(bar, "progress", reflect.TypeFor[progressFunc]().AssignableTo)
	if !ok {
		return false
	}
	symbol, ok := field(bar, "status", func(t reflect.Type) bool { return t.Kind() == reflect.Int32 })
	if !ok {
		return false
	}
	modify(func(*B) {
		progress.Set(reflect.ValueOf(fn))
		if status != 0 {
			symbol.SetInt(int64(status))
		}
	})

	return true
}

// field is an unexported field of a struct as a value that can be set, if the field's type is acceptable.
func field[B any](of *B, name string, acceptable func(reflect.Type) bool) (reflect.Value, bool) {
	v := reflect.ValueOf(of).Elem()
	if v.Kind() != reflect.Struct {
		return reflect.Value{}, false
	}
	f := v.FieldByName(name)
	if !f.IsValid() || !acceptable(f.Type()) {
		return reflect.Value{}, false
	}
	address := unsafe.Pointer(f.UnsafeAddr()) // #nosec G103 -- #nosec G103 -- a field of a live struct, its type checked

	return reflect.NewAt(f.Type(), address).Elem(), true
}
