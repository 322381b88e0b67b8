package harness

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"slices"
	"testing"
)

// shrink makes a screenshot small enough to keep: the 256 commonest colours of a page are all but a few shades at the edges of
// letters, which take the nearest one.
func shrink(in []byte) ([]byte, error) {
	src, err := png.Decode(bytes.NewReader(in))
	if err != nil {
		return nil, err
	}
	count := map[color.RGBA]int{}
	size := src.Bounds()
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(src.At(x, y)).(color.RGBA) }
	for y := size.Min.Y; y < size.Max.Y; y++ {
		for x := size.Min.X; x < size.Max.X; x++ {
			count[at(x, y)]++
		}
	}
	var all []color.RGBA
	for c := range count {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b color.RGBA) int { return count[b] - count[a] })
	var palette color.Palette
	for _, c := range all[:min(256, len(all))] {
		palette = append(palette, c)
	}
	out := image.NewPaletted(size, palette)
	nearest := map[color.RGBA]uint8{}
	for y := size.Min.Y; y < size.Max.Y; y++ {
		for x := size.Min.X; x < size.Max.X; x++ {
			c := at(x, y)
			i, seen := nearest[c]
			if !seen {
				i = uint8(palette.Index(c)) //nolint:gosec // at most 256 colours
				nearest[c] = i
			}
			out.SetColorIndex(x, y, i)
		}
	}
	var b bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, out)
	return b.Bytes(), err
}

func TestShrinkKeepsAPictureOfFewColours(t *testing.T) {
	img := image.NewRGBA(image.Rect(0, 0, 40, 40))
	for x := range 40 {
		for y := range 40 {
			img.Set(x, y, color.RGBA{uint8(x * 6), 0, uint8(y), 255}) //nolint:gosec // below 256
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	small, err := shrink(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	got, err := png.Decode(bytes.NewReader(small))
	if err != nil || got.Bounds() != img.Bounds() {
		t.Fatalf("%v, %v", got.Bounds(), err)
	}
}
