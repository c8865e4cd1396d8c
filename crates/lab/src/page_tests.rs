use super::*;
use crate::machine;
use crate::record::Turn;

fn document() -> Document {
    let mut document = Document::new(machine::describe());
    let case = Case { scenario: "lockref".to_owned(), threads: 2, think_ns: 0 };
    for (arm, rate) in [("lockref", 30e6), ("std", 10e6), ("parking_lot", 20e6), ("control", 900e6)]
    {
        let turn = |factor: f64| {
            Turn::from([("rate".to_owned(), rate * factor), ("ns".to_owned(), 1e9 / rate)])
        };
        document.rows.push(Row {
            case: case.clone(),
            arm: arm.to_owned(),
            oversubscribed: false,
            rejected: 1,
            disturbed: 0,
            turns: vec![turn(0.9), turn(1.0), turn(1.1)],
        });
    }
    document
}

#[test]
fn the_answer_compares_the_subject_with_the_best_of_the_others() {
    let page = page(&[("run.json".to_owned(), document())]).expect("a page");
    assert!(page.contains("2 threads: lockref does 1.50 times the rate of parking_lot"), "{page}");
    assert!(page.contains("<a href=\"run.json\">"));
    assert!(page.contains("1 round thrown away"), "{page}");
    assert_eq!(page.matches("<svg").count(), 1, "one case, one plot");
    assert!(
        !page.contains("<script") && !page.contains("http://") || page.contains("www.w3.org"),
        "one file"
    );
}

#[test]
fn a_loss_is_said_as_plainly() {
    let mut document = document();
    document.rows[0]
        .turns
        .iter_mut()
        .for_each(|turn| *turn.get_mut("rate").expect("a rate") /= 3.0);
    let page = page(&[("run.json".to_owned(), document)]).expect("a page");
    assert!(page.contains("lockref does 0.50 times the rate of parking_lot"), "{page}");
}

#[test]
fn what_a_file_name_holds_is_text() {
    let page = page(&[("<b>&\".json".to_owned(), document())]).expect("a page");
    assert!(page.contains("&lt;b&gt;&amp;&quot;.json") && !page.contains("<b>"));
}

#[test]
fn a_directory_without_runs_or_with_a_broken_one_is_refused() {
    let directory = std::env::temp_dir().join(format!("vfscale-lab-page-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let refused = |what: &str| match read_all(&directory) {
        Err(Error::Usage(why)) => assert!(why.contains(what), "{why}"),
        other => panic!("{other:?}"),
    };
    refused("no .json file");
    std::fs::write(directory.join("broken.json"), "{").expect("a file");
    refused("not a run");
    std::fs::remove_dir_all(&directory).expect("it is ours");
    refused("No such file");
}
